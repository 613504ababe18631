"""`blockhouse aggregator`: run one aggregator."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from blockhouse.config.load import load

app = typer.Typer(no_args_is_help=True, help="The aggregator: loads one replica of one shard.")


@app.callback()
def _group() -> None:
    """The aggregator: loads one replica of one shard."""


@app.command()
def run(
    config: Annotated[Path, typer.Option("--config", "-c", help="The YAML file of docs/configuration.md.")],
) -> None:
    """Run until SIGTERM, then finish within `shutdownBudget`.

    Example: blockhouse aggregator run --config aggregator.yaml

    Exit codes: 0 stopped in order, 2 wrong configuration, 70 the Spark JVM died, 71 something only a restart mends.
    """
    settings = load(config)
    # Heavy imports only here: `blockhouse --help` must not load Spark.
    from blockhouse_aggregator.app import Aggregator
    from blockhouse.logs import configure

    configure(settings.log_format, settings.log_level)

    async def main() -> int:
        return await Aggregator(settings).run()

    raise typer.Exit(asyncio.run(main()))
