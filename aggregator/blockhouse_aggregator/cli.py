"""`blockhouse aggregator`: run one aggregator."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Annotated

import structlog
import typer

from blockhouse.config.load import load

app = typer.Typer(no_args_is_help=True, help="The aggregator: loads one replica of one shard.")


@app.callback()
def _group() -> None:
    """The aggregator: loads one replica of one shard."""


@app.command()
def run(
    config: Annotated[Path, typer.Option("--config", "-c", help="The YAML file of docs/configuration.md.")],
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Log fields of a newer version instead of refusing them.")
    ] = False,
) -> None:
    """Run until SIGTERM, then finish within `shutdownBudget`.

    Example: blockhouse aggregator run --config aggregator.yaml

    Exit codes: 0 stopped in order, 2 wrong configuration, 70 the Spark JVM died, 71 something only a restart mends.
    """
    unknown: list[str] = []
    settings = load(config, unknown.append if ignore_unknown else None)
    # Heavy imports only here: `blockhouse --help` must not load Spark.
    from blockhouse.logs import configure
    from blockhouse_aggregator.app import Aggregator

    configure(settings.log_format, settings.log_level)
    for field in unknown:
        structlog.get_logger(__name__).warning("config.unknown_field", field=field, file=str(config))

    async def main() -> int:
        return await Aggregator(settings).run()

    raise typer.Exit(asyncio.run(main()))
