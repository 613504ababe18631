"""Every reason that the operator can give has its section in docs/runbook.md, and no section is about none."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest
from typer.testing import CliRunner

from blockhouse.cli import build_app
from blockhouse_operator.api.conditions import ConditionType, Reason

PAGE = (Path(__file__).parents[3] / "docs" / "runbook.md").read_text()
SECTIONS = dict(re.findall(r"^## (\w+)\n(.+?)(?=^#|\Z)", PAGE, re.MULTILINE | re.DOTALL))
COMMANDS = sorted({" ".join(words.split()[:3]) for words in re.findall(r"`(blockhouse [^`]+)`", PAGE)})


def test_every_reason_has_a_section_and_every_section_a_reason() -> None:
    assert set(SECTIONS) == {reason.value for reason in Reason}


@pytest.mark.parametrize("reason", [reason.value for reason in Reason])
def test_a_section_holds_more_than_the_name(reason: str) -> None:
    assert len(SECTIONS[reason].split()) >= 8


def test_every_condition_is_explained() -> None:
    assert set(re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)) == {kind.value for kind in ConditionType}


def test_links_within_the_page_lead_somewhere() -> None:
    assert set(re.findall(r"\]\(#(\w+)\)", PAGE)) <= {name.lower() for name in SECTIONS}


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_exists(command: str) -> None:
    words = shlex.split(command)[1:]
    result = CliRunner().invoke(build_app(words), [*words, "--help"])
    assert result.exit_code == 0, result.output
