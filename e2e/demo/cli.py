"""Show exactly-once on this machine: two Kafka clusters into replicated ClickHouse, with kills and an audit."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from e2e.clickhouse_choice import CURRENT, ClickHouseOption
from e2e.demo.mirror.cli import mirror
from e2e.demo.scenario import plan

DEFAULT_FOLDER = Path(".run/demo")

_HELP = """Load two Kafka clusters into replicated ClickHouse, kill and freeze aggregators, and audit every row.

Everything runs on this machine and is stopped at the end, also after Ctrl-C. Exit code 0 only if every row is on every
replica exactly once although an aggregator was killed between commit and acknowledgement, one was frozen until others
had its streams, and a replayed block was recognised; 1 otherwise, with the names of those that failed.

Examples:

  blockhouse demo

  REPLICAS=4 SEED=7 make demo

  blockhouse demo --rows 1000000 --keep

  blockhouse demo mirror
"""

app = typer.Typer(pretty_exceptions_enable=False)
app.command("mirror")(mirror)


@app.callback(invoke_without_command=True, help=_HELP)
def demo(
    context: typer.Context,
    replicas: Annotated[
        int, typer.Option(envvar="REPLICAS", min=2, max=8, help="ClickHouse replicas, and aggregators.")
    ] = 2,
    seed: Annotated[int, typer.Option(envvar="SEED", min=0, help="Decides rows, victims and moments.")] = 1,
    rows: Annotated[int, typer.Option(envvar="ROWS", min=10_000, help="Rows to produce, over one minute.")] = 360_000,
    folder: Annotated[Path, typer.Option(help="Where everything is kept; emptied at the start.")] = DEFAULT_FOLDER,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the servers' data too, to start them again.")] = False,
    clickhouse: ClickHouseOption = CURRENT,  # noqa: ARG001 - its callback has set it for everything that runs from here
) -> None:
    if context.invoked_subcommand is not None:
        return
    # Heavy imports only here: `blockhouse demo --help` must not load Kafka's and ClickHouse's clients.
    from e2e.demo.stage import finish, staged
    from e2e.demo.story import perform

    with staged(folder, keep=keep) as (home, console):
        checks = perform(plan(seed, rows, replicas), home, console, keep=keep)
    finish(console, checks, "exactly once, shown")
