"""docs/sizing.md shows what `blockhouse plan` prints for the file that it shows."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from blockhouse import cli
from blockhouse.capacity.demand import Demand
from blockhouse.config.describe import table

PAGE = (Path(__file__).parents[3] / "docs/sizing.md").read_text()
COMMANDS = re.findall(r"^    blockhouse (.*)$", PAGE, re.MULTILINE)
(DEMAND, OUTPUT) = re.findall(r"^```(?:yaml)?\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def run(
    command: str, folder: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> tuple[int, str]:
    (folder / "demand.yaml").write_text(DEMAND)
    monkeypatch.chdir(folder)
    monkeypatch.setenv("COLUMNS", "120")
    with pytest.raises(SystemExit) as exit_:
        cli.main(shlex.split(command))
    assert isinstance(exit_.value.code, int)
    return exit_.value.code, "".join(f"{line.rstrip()}\n" for line in capsys.readouterr().out.splitlines())


def test_the_example_prints_what_the_page_shows(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    first, second = COMMANDS

    assert run(first, tmp_path, capsys, monkeypatch) == (1, OUTPUT)
    code, output = run(second, tmp_path, capsys, monkeypatch)
    assert (code, "warning" in output) == (0, False)


def test_the_fields_are_those_of_the_demand() -> None:
    assert table(Demand) in PAGE
