"""Off a terminal COLUMNS is honoured, and no name is ever cut."""

from __future__ import annotations

import pytest
from rich.table import Table

from blockhouse.cli.tables import print_table

KEY = "cluster-in-a-far-datacenter/events-01/3/1274"


def printed(capsys: pytest.CaptureFixture[str], *, wide: bool = False) -> list[str]:
    table = Table("key", "why")
    table.add_row(KEY, "because " * 10)
    print_table(table, wide=wide)
    return capsys.readouterr().out.splitlines()


def test_columns_is_the_width_off_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "60")
    lines = printed(capsys)
    assert max(map(len, lines)) <= 60
    assert "…" not in "".join(lines)


def test_without_columns_a_file_is_wide(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("COLUMNS", raising=False)
    assert any(KEY in line for line in printed(capsys))


def test_wide_keeps_every_key_in_one_piece(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "40")
    (line,) = (line for line in printed(capsys, wide=True) if KEY in line)
    assert "because " * 9 in line
