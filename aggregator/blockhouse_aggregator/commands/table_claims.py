"""`blockhouse streams claims`: which pipelines have claimed a table, and the end of a claim whose pipeline is gone.

Must never end the claim of a pipeline that still loads: its rows would answer for another one's blocks.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from blockhouse.config.load import load
from blockhouse.errors import Retryable
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.tables import replicated_tables
from blockhouse_aggregator.coordination.claims import TableClaims
from blockhouse_aggregator.coordination.locks import TableLocks
from blockhouse_aggregator.coordination.session import Session

LOCK_WAIT = 30.0


def claims(
    table: Annotated[str, typer.Argument(help="`database.table`, or a table of the configured database.")],
    config: Annotated[Path, typer.Option("--config", "-c", help="YAML configuration of an aggregator of the shard.")],
    release: Annotated[str, typer.Option(help="A claimant, as shown: its pipeline loads the table no more.")] = "",
    yes: Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what would happen.")] = False,
) -> None:
    """Show which pipelines have claimed a table, with the topics of their rows; end the claim of one that has ended.

    Only the column `_kafka_topic` separates rows from those of another pipeline: without it a second one is refused
    (`TableClaimed`). A claim outlives its pipeline, as its rows do. Releasing it states that nothing of that pipeline
    is in flight any more; a block of the next one that finds rows without a topic is blocked, not decided by them.

    Example: blockhouse streams claims db.clicks --config aggregator.yaml
    """
    settings = load(config)
    name = table if "." in table else f"{settings.clickhouse.database}.{table}"
    with Session(settings.zookeeper) as session, Replica(settings.clickhouse) as replica:
        path = replicated_tables(replica).get(name)
        if path is None:
            raise typer.BadParameter(f"the replica has no replicated table {name}", param_hint="TABLE")
        known = TableClaims(session, "blockhouse streams claims")
        found = known.all(name, path)
        for who, claimant in sorted(found.claimants.items()):
            topics = ", ".join(f"{cluster}: {topic}" for cluster, topic in claimant.topics)
            typer.echo(f"{who}{' (ended)' if claimant.ended else ''}: {topics}")
        if not found.claimants:
            typer.echo("no pipeline has claimed it")
        if not release:
            return
        if release not in found.claimants:
            raise typer.BadParameter(f"{release} is no claimant of {name}", param_hint="--release")
        if not yes:
            typer.echo(f"Would be released: {release}. Nothing was changed; add --yes to do it.")
            return
        locks = TableLocks(session, settings.shard, holder="blockhouse streams claims")
        _release(known, locks, name, path, release)
        typer.echo(f"Released: {release}.")


def _release(known: TableClaims, locks: TableLocks, table: str, path: str, who: str) -> None:
    """With the table's lock held, as every change of claims."""
    lock = locks.acquire(table, LOCK_WAIT, path)
    if lock is None:
        raise Retryable(f"the lock of {table} was not free within {LOCK_WAIT:.0f} s")
    try:
        known.release(table, path, who)
    finally:
        locks.release(lock)
