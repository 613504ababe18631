"""What runs where, as a table for people."""

from __future__ import annotations

from collections.abc import Callable, Collection
from pathlib import Path

import psutil
from rich.console import Console
from rich.table import Table

from e2e.stack.server import Server

ANSWERS = "answers"


def show(
    out: Console,
    folder: Path,
    noun: str,
    servers: Collection[Server],
    address: Callable[[Server], str] | None = None,
) -> bool:
    """Prints a line for each server of `folder`, called `noun`; returns whether all of them answer."""
    table = Table(title=f"{folder}, logs in {noun.upper()}/server.log", title_justify="left")
    right = ("pid", "memory")
    for column in (noun, "state", *(("address",) if address else ()), *right):
        # Off a terminal there are 80 columns, and a pid is no use without its last digits: the address gives way.
        table.add_column(column, justify="right" if column in right else "left", no_wrap=column != "address")
    states = [_state(server) for server in servers]
    for server, state in zip(servers, states, strict=True):
        colour = "green" if state == ANSWERS else "red"
        where = (address(server),) if address else ()
        table.add_row(server.name, f"[{colour}]{state}[/]", *where, str(server.pid or ""), _memory(server))
    out.print(table)
    return all(state == ANSWERS for state in states)


def _state(server: Server) -> str:
    if not server.alive:
        return "down"
    if server.frozen:
        return "frozen"
    return ANSWERS if server.answers() else "silent"


def _memory(server: Server) -> str:
    try:
        return f"{psutil.Process(server.pid).memory_info().rss >> 20} MiB" if server.pid else ""
    except psutil.NoSuchProcess:  # died while we looked
        return ""
