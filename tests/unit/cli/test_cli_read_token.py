"""`blockhouse config read-token`: what it prints is accepted for reading, and is not the token itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from blockhouse import cli
from blockhouse.tokens import Access, Tokens


def test_what_it_prints_only_reads(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "token"
    file.write_text("secret\n")

    with pytest.raises(SystemExit) as end:
        cli.main(["config", "read-token", str(file)])

    assert end.value.code == 0
    assert Tokens(lambda: "secret").access(capsys.readouterr().out.strip()) is Access.READ
