"""The `blockhouse` command as a whole: what it loads, what it hides, and how it fails."""

from __future__ import annotations

import subprocess
import sys
import tomllib
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from blockhouse import cli
from blockhouse.cli.extras import how_to_install


@pytest.fixture
def commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[EntryPoint]:
    """The installed commands, to be changed by a test; packages in `tmp_path` can be imported."""
    installed: list[EntryPoint] = []
    monkeypatch.setattr(cli, "entry_points", lambda group: [e for e in installed if e.group == group])
    monkeypatch.syspath_prepend(str(tmp_path))
    return installed


def command(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, cli.GROUP)


def package(folder: Path, name: str, module: str) -> None:
    (folder / name).mkdir()
    (folder / name / "__init__.py").touch()
    (folder / name / "commands.py").write_text(module)


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exit_:
        cli.main(arguments)
    return exit_.value.code if isinstance(exit_.value.code, int) else 1


def test_help_imports_no_command(
    commands: list[EntryPoint], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package(tmp_path, "slow", '"""Count the stars."""\nraise AssertionError("imported")')
    commands.append(command("count", "slow.commands:app"))

    assert run("--help") == 0

    assert "Count the stars." in capsys.readouterr().out


def test_an_interrupt_while_a_command_is_loaded_is_no_traceback(commands: list[EntryPoint], tmp_path: Path) -> None:
    package(tmp_path, "long", '"""Take long."""\nraise KeyboardInterrupt')
    commands.append(command("take", "long.commands:app"))

    assert run("take") == 130


def test_help_loads_no_client_library() -> None:
    check = (
        "import sys\nfrom blockhouse import cli\n"
        "try: cli.main(['--help'])\nexcept SystemExit: pass\n"
        "print([m for m in ('pyspark', 'confluent_kafka', 'kazoo', 'numpy', 'pydantic') if m in sys.modules])"
    )

    printed = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True).stdout

    assert printed.splitlines()[-1] == "[]"


def test_a_package_that_is_not_installed_hides_its_command(
    commands: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    commands.append(command("fly", "not_installed_anywhere.commands:app"))

    assert run("--help") == 0
    assert "fly" not in capsys.readouterr().out
    assert run("fly") == 2


def test_a_command_of_a_checkout_is_not_listed_without_one_and_its_place_is_named(
    commands: list[EntryPoint], capsys: pytest.CaptureFixture[str]
) -> None:
    commands.append(EntryPoint("dance", "not_installed_anywhere.commands:app", cli.CHECKOUT_GROUP))

    assert run("--help") == 0
    page = " ".join(capsys.readouterr().out.split())
    assert "Not installed here: dance; a checkout of the source has them, after `make setup`." in page
    assert page.count("dance") == 1, "it is no command"
    assert run("dance") == 1
    assert "command 'dance' is not part of an installed package: a checkout" in capsys.readouterr().err


def test_a_command_of_a_checkout_is_a_command_in_one(
    commands: list[EntryPoint], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package(tmp_path, "dancing", '"""Dance."""\ndef dance():\n    print("danced")')
    commands.append(EntryPoint("dance", "dancing.commands:dance", cli.CHECKOUT_GROUP))

    assert run("--help") == 0
    assert "Not installed here" not in capsys.readouterr().out
    assert run("dance") == 0


def test_every_command_of_the_wheel_is_in_the_wheel() -> None:
    project = tomllib.loads((Path(__file__).parents[3] / "pyproject.toml").read_text())
    packed = {Path(folder).name for folder in project["tool"]["hatch"]["build"]["targets"]["wheel"]["packages"]}
    declared = project["project"]["entry-points"]

    assert {value.split(".")[0] for value in declared[cli.GROUP].values()} <= packed
    assert {value.split(".")[0] for value in declared[cli.CHECKOUT_GROUP].values()} == {"e2e"}


def test_a_broken_command_is_named(
    commands: list[EntryPoint], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package(tmp_path, "broken", "import no_such_library")
    commands.append(command("fly", "broken.commands:app"))

    assert run("fly") == 1

    assert "command 'fly' cannot be loaded from broken.commands:app: ModuleNotFoundError" in capsys.readouterr().err


@pytest.mark.parametrize(
    "module",
    ["import no_such_library.wings", "def fly():\n    import no_such_library.wings"],
    ids=["loaded", "run"],
)
def test_a_command_without_its_packages_names_the_extra_that_brings_them(
    commands: list[EntryPoint], tmp_path: Path, capsys: pytest.CaptureFixture[str], module: str
) -> None:
    package(tmp_path, "bare", f'"""Fly."""\n{module}')
    commands.append(command("fly", "bare.commands:fly [wings]"))

    assert run("--help") == 0
    assert "Fly." in capsys.readouterr().out
    assert run("fly") == 1
    assert capsys.readouterr().err == (
        f"error: command 'fly' needs the package 'no_such_library', which is not installed: {how_to_install('wings')}\n"
    )


def test_an_expected_error_is_one_line_without_traceback(
    commands: list[EntryPoint], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    package(
        tmp_path,
        "failing",
        "from blockhouse.errors import BlockhouseError\ndef fly():\n    raise BlockhouseError('no wings')",
    )
    commands.append(command("fly", "failing.commands:fly"))

    assert run("fly") == 1

    assert capsys.readouterr().err == "error: no wings\n"


def test_an_error_may_bring_its_exit_code(commands: list[EntryPoint], tmp_path: Path) -> None:
    package(
        tmp_path,
        "misused",
        "from blockhouse.errors import BlockhouseError\n"
        "class Misused(BlockhouseError):\n    exit_code = 2\ndef fly():\n    raise Misused('wrong')",
    )
    commands.append(command("fly", "misused.commands:fly"))

    assert run("fly") == 2


def test_version_is_printed(capsys: pytest.CaptureFixture[str]) -> None:
    assert run("--version") == 0

    assert capsys.readouterr().out.startswith("blockhouse 0.")


def test_an_unknown_command_is_wrong_usage() -> None:
    assert run("no-such-command") == 2
