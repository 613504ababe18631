"""CLICKHOUSE: which server the stacks of this process, and of those it starts, run. Light, for `--help` imports it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Annotated

import typer

from e2e import standin

VARIABLE = "CLICKHOUSE"
CURRENT = standin.SERIES
"""The default."""
OLDEST = "18.16"


def chosen(environment: Mapping[str, str] = os.environ) -> str:
    """The value of CLICKHOUSE, or the current server."""
    return environment.get(VARIABLE) or CURRENT


def _choose(choice: str | None) -> str | None:
    if choice:
        os.environ[VARIABLE] = choice
    return choice


ClickHouseOption = Annotated[
    str | None,
    typer.Option(
        "--clickhouse",
        envvar=VARIABLE,
        callback=_choose,
        show_default=CURRENT,
        help=f"Which server: {CURRENT}, {OLDEST}, or the path of a clickhouse-server.",
    ),
]
"""An option of every command that starts a stack; `chosen` answers with it from then on."""
