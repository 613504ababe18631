"""`blockhouse aggregator`: run one aggregator."""

from __future__ import annotations

import asyncio
import warnings
from pathlib import Path
from typing import Annotated

import structlog
import typer

from blockhouse.config.files import absent
from blockhouse.config.load import ConfigError, load
from blockhouse.config.pipeline import AggregatorConfig

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

    Exit codes: 0 stopped in order, 2 wrong configuration, or a file or environment variable of it is missing, 70 Spark
    runs no task or died, 71 something only a restart can recover, 72 five internal errors in ten minutes.
    """
    unknown: list[str] = []
    settings = load(config, unknown.append if ignore_unknown else None)
    if missing := absent(settings):
        raise ConfigError(str(config), missing)  # before Spark starts, whose own errors would hide this one
    # Heavy imports only here: `blockhouse --help` must not load Spark. It warns of a pandas that nothing here uses.
    warnings.filterwarnings("ignore", message="PySpark does not yet fully support pandas")
    from blockhouse.logs import configure
    from blockhouse_aggregator.app import Aggregator

    configure(settings.log_format, settings.log_level)
    for field in unknown:
        structlog.get_logger(__name__).warning("config.unknown_field", field=field, file=str(config))
    _announce(settings)

    async def main() -> int:
        return await Aggregator(settings).run()

    raise typer.Exit(asyncio.run(main()))


def _announce(settings: AggregatorConfig) -> None:
    """The first line: what it connects to, and where it listens."""
    log = structlog.get_logger(__name__)
    log.info(
        "aggregator.starts",
        pipeline=settings.pipeline,
        shard=settings.shard,
        replica=settings.replica,
        topic=settings.kafka.topic,
        group=settings.kafka.group,
        kafka={cluster.name: cluster.bootstrap_servers for cluster in settings.kafka.clusters},
        clickhouse=f"{settings.clickhouse.host}:{settings.clickhouse.port}",
        zookeeper=f"{settings.zookeeper.servers}{settings.zookeeper.root}",
        admin=f"{settings.admin.host}:{settings.admin.port}",
    )
    if settings.faults.enabled:
        log.warning("faults.enabled", why="faults.enabled is set: this aggregator fails on request")
