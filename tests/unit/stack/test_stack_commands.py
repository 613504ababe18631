"""What `stack up` prints last can be pasted where it was called, whichever `blockhouse` that shell finds."""

from __future__ import annotations

from pathlib import Path
from typing import cast
from unittest.mock import PropertyMock, create_autospec

import pytest
from typer.testing import CliRunner

from e2e.stack import cli
from e2e.stack.clickhouse import ClickHouseServer


def program(folder: Path) -> Path:
    folder.mkdir()
    path = folder / "blockhouse"
    path.write_text("#!/bin/sh\n")
    path.chmod(0o755)
    return path


def test_the_program_is_named_by_its_path_where_the_shell_finds_another_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    own, other = program(tmp_path / "check out"), program(tmp_path / "venv")
    monkeypatch.setattr("sys.argv", [str(own)])

    monkeypatch.setenv("PATH", str(other.parent))
    assert cli._own_command() == f"'{own}'"
    monkeypatch.setenv("PATH", str(own.parent))
    assert cli._own_command() == "blockhouse"
    monkeypatch.setenv("PATH", str(tmp_path))
    assert cli._own_command() == f"'{own}'"


def server(**found: object) -> ClickHouseServer:
    made = create_autospec(ClickHouseServer, instance=True, host="h", port=1, http_port=2, **found)
    return cast(ClickHouseServer, made)


def test_the_version_of_a_running_clickhouse_is_shown() -> None:
    assert cli._address(server(alive=True, frozen=False, version="18.16.1")) == "h:1, http 2, version 18.16.1"
    assert cli._address(server(alive=True, frozen=True)) == "h:1, http 2"


def test_a_server_that_does_not_answer_has_none() -> None:
    silent = server(alive=True, frozen=False)
    type(silent).version = PropertyMock(side_effect=ConnectionRefusedError)  # type: ignore[method-assign, assignment]

    assert cli._address(silent) == "h:1, http 2"


def test_the_help_names_the_version_that_is_started_by_default() -> None:
    text = CliRunner().invoke(cli.app, ["up", "--help"], env={"COLUMNS": "200"}).output

    assert "default: (26.9)" in text
