"""Tables for people, in which no name is ever cut: on a terminal it continues on the next line, with --wide it has its
width."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

FILE_WIDTH = 200
"""Columns when the output is no terminal and COLUMNS is not set."""
_UNLIMITED = 10_000

Wide = Annotated[bool, typer.Option("--wide", help="As wide as its content: nothing continues on a second line.")]


def print_table(table: Table, *, wide: bool = False) -> None:
    """Print to standard output, as wide as the terminal, COLUMNS, or a file's default."""
    for column in table.columns:
        column.overflow = "fold"
    output_console(wide=wide).print(table)


def output_console(*, wide: bool = False) -> Console:
    """Standard output; a width in COLUMNS counts also where it is no terminal."""
    if wide:
        return Console(width=_UNLIMITED)
    known = sys.stdout.isatty() or os.environ.get("COLUMNS", "").isdecimal()
    return Console(width=None if known else FILE_WIDTH)
