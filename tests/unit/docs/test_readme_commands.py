"""What README and the pages beside it ask people to type exists: make targets, commands, options, files, pages."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
import typer
from typer.testing import CliRunner

from blockhouse.cli import build_app

ROOT = Path(__file__).parents[3]
PAGES = (
    "README.md",
    "CONTRIBUTING.md",
    "ARCHITECTURE.md",
    "docs/admin-api.md",
    "docs/audit.md",
    "docs/cluster.md",
    "docs/concepts.md",
    "docs/demo.md",
    "docs/first-table.md",
    "docs/mirror.md",
    "docs/testing.md",
    "docs/operator.md",
    "docs/sizing.md",
    "docs/schema-changes.md",
    "docs/verifier.md",
    "examples/producers/README.md",
)
COMMAND = re.compile(r"(?:^ {4}|`)((?:[A-Z]+=\w+ )*(?:make|blockhouse) [^`\n]+)", re.MULTILINE)
LINK = re.compile(r"\]\(([^)#:]+)(?:#[^)]*)?\)")


def commands(page: str) -> list[str]:
    """Every command shown in backticks or an indented block, without comment. `a|b` stands for two commands."""
    found = [match.split("#")[0].strip() for match in COMMAND.findall((ROOT / page).read_text())]
    return [line for line in dict.fromkeys(found) if not line.endswith(("...", "\\"))]


ALL = [(page, command) for page in PAGES for command in commands(page)]
TARGETS = set(re.findall(r"^([a-z0-9-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_the_two_commands_of_the_readme_are_seen_by_this_test() -> None:
    assert {"make setup", "make demo"} <= set(commands("README.md"))


@pytest.mark.parametrize(("page", "command"), [c for c in ALL if "make " in c[1]])
def test_every_make_target_exists(page: str, command: str) -> None:
    words = [word for word in shlex.split(command) if "=" not in word]

    assert words[0] == "make"
    assert set(words[1:]) <= TARGETS, f"{page}: {command}"


@pytest.mark.parametrize(("page", "command"), [c for c in ALL if c[1].startswith("blockhouse ")])
def test_every_command_and_option_exists(page: str, command: str) -> None:
    for words in variants(shlex.split(command)[1:]):
        names = [word for word in words if re.fullmatch(r"[a-z]+", word)][:2]
        options = {word.split("=")[0] for word in words if word.startswith("--")}

        shown = help_of(names)

        assert options <= set(re.findall(r"--[a-z-]+", shown)), f"{page}: {command}"


def variants(words: list[str]) -> list[list[str]]:
    """`metadata decode|encode` is two commands."""
    for at, word in enumerate(words):
        if re.fullmatch(r"[a-z]+(\|[a-z]+)+", word):
            return [[*words[:at], name, *words[at + 1 :]] for name in word.split("|")]
    return [words]


def help_of(names: list[str]) -> str:
    """The help of a command, or of its group when the second word is an argument."""
    app = typer.main.get_command(build_app(names))
    group = getattr(app, "commands", {})
    assert names[0] in group, f"no command blockhouse {names[0]}"
    subcommands = getattr(group[names[0]], "commands", {})
    if len(names) > 1 and subcommands:
        assert names[1] in subcommands, f"no command blockhouse {' '.join(names)}"
    path = names[: 2 if subcommands else 1]
    result = CliRunner().invoke(build_app(names), [*path, "--help"], env={"COLUMNS": "200", "TERM": "dumb"})
    assert result.exit_code == 0, result.output
    return result.output


@pytest.mark.parametrize("page", [*PAGES, "CHANGELOG.md"])
def test_every_link_leads_to_a_file(page: str) -> None:
    text = re.sub(r"`[^`\n]*`(?!\])", "", (ROOT / page).read_text())  # a pattern in code is no link
    targets = LINK.findall(text)

    missing = [target for target in targets if not ((ROOT / page).parent / target).exists()]

    assert missing == []
