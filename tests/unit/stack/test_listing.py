"""The servers of a stack as a table: off a terminal it has 80 columns."""

from __future__ import annotations

import io
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from rich.console import Console

from e2e.stack.listing import show


def test_in_80_columns_no_name_and_no_pid_is_cut() -> None:
    server: Any = SimpleNamespace(
        name="clickhouse-1-1", alive=True, frozen=False, pid=os.getpid(), answers=lambda: True
    )
    text = io.StringIO()

    show(Console(file=text, width=80), Path("stack"), "server", [server], lambda _: f"{'127.0.0.1:33083, ' * 3}end")

    row = next(line for line in text.getvalue().splitlines() if server.name in line)
    assert str(server.pid) in row
    assert "end" in text.getvalue(), "the address continues in the next line"
