"""Show exactly-once on this machine: two Kafka clusters into replicated ClickHouse, with kills and an audit."""

from __future__ import annotations

import shutil
import signal
from contextlib import ExitStack
from pathlib import Path
from types import FrameType
from typing import Annotated

import typer
from rich.console import Console

from e2e.clickhouse_choice import CURRENT, ClickHouseOption
from e2e.demo.scenario import plan

DEFAULT_FOLDER = Path(".run/demo")
INTERRUPTED = 130

_HELP = """Load two Kafka clusters into replicated ClickHouse, kill and freeze aggregators, and audit every row.

Everything runs on this machine and is stopped at the end, also after Ctrl-C. Exit code 0 only if every row is on every
replica exactly once although an aggregator was killed between commit and acknowledgement, one was frozen until others
had its streams, and a replayed block was recognised; 1 otherwise, with the names of those that failed.

Examples:

  blockhouse demo

  REPLICAS=4 SEED=7 make demo

  blockhouse demo --rows 1000000 --keep
"""


def demo(
    replicas: Annotated[
        int, typer.Option(envvar="REPLICAS", min=2, max=8, help="ClickHouse replicas, and aggregators.")
    ] = 2,
    seed: Annotated[int, typer.Option(envvar="SEED", min=0, help="Decides rows, victims and moments.")] = 1,
    rows: Annotated[int, typer.Option(envvar="ROWS", min=10_000, help="Rows to produce, over one minute.")] = 360_000,
    folder: Annotated[Path, typer.Option(help="Where everything is kept; emptied at the start.")] = DEFAULT_FOLDER,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the servers' data too, to start them again.")] = False,
    clickhouse: ClickHouseOption = CURRENT,  # noqa: ARG001 - its callback has set it for everything that runs from here
) -> None:
    # Heavy imports only here: `blockhouse demo --help` must not load Kafka's and ClickHouse's clients.
    from e2e.demo.story import perform
    from e2e.kit.workspace import stderr_to, workspace

    console = Console()
    if not console.is_terminal:
        console = Console(width=120)
    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    with ExitStack() as exits:
        home = exits.enter_context(workspace(folder))
        try:
            with stderr_to(home / "demo.log"):
                checks = perform(plan(seed, rows, replicas), home, console, keep=keep)
        except KeyboardInterrupt:
            if not keep:
                shutil.rmtree(home, ignore_errors=True)
            console.print("interrupted: everything is stopped")
            raise typer.Exit(INTERRUPTED) from None
        except BaseException:
            console.print(f"failed; logs and configurations are in {home}")
            raise
    failed = [check.demand for check in checks if not check.holds]
    if failed:
        console.print(f"FAILED: {'; '.join(failed)}", style="bold red")
        raise typer.Exit(1)
    console.print("exactly once, shown", style="bold green")


demo.__doc__ = _HELP


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
