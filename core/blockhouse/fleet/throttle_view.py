"""A throttle as people read it. Layout only: every figure comes from `blockhouse.throttle.report`."""

from __future__ import annotations

import math
from collections.abc import Iterable

from rich.console import Console
from rich.table import Table

from blockhouse.throttle.model import Role
from blockhouse.throttle.report import Row

MB, GB = 1e6, 1e9
SIDE = {Role.LEADER: "source", Role.FOLLOWER: "destination"}


def show_rows(console: Console, rows: Iterable[Row]) -> None:
    """A line for each broker and role; rates in MB/s (10^6 bytes)."""
    table = Table("broker", "role", "capacity", "clients", "copied", "rate", "floor", "why", "left", "ETA", box=None)
    for row in rows:
        table.add_row(
            str(row.broker) if row.alive else f"{row.broker} (dead)",
            SIDE[row.role],
            _mb(row.capacity),
            _mb(row.other),
            _mb(row.moved),
            _mb(row.rate) if row.in_force is not None else f"{_mb(row.rate)} (not set)",
            _mb(row.floor),
            ("[red]stalled:[/] " if row.stalled else "") + row.why,
            "-" if row.remaining is None else f"{row.remaining / GB:.2f} GB",
            duration(row.eta),
        )
    console.print(table)


def duration(seconds: float | None) -> str:
    """`1h 05m`, `42s`, `never`, or `-` while unknown."""
    if seconds is None:
        return "-"
    if math.isinf(seconds):
        return "never"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours}h {minutes:02d}m"
    return f"{minutes}m {rest:02d}s" if minutes else f"{rest}s"


def _mb(rate: float | None) -> str:
    return "-" if rate is None else f"{rate / MB:.1f}"
