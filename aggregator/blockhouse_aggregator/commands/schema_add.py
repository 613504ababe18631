"""`blockhouse schema add`: register a table that the shard has, before the first message of it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from blockhouse.config.load import load
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import Permanent, Retryable
from blockhouse.schema.history import extend
from blockhouse.schema.model import Revision, TableHistory
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.tables import describe
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.runtime.tables.loadable import check_loadable

POLL = 0.5

_HELP = """Register a table that the shard has already, as its first message would.

`blockhouse schema proto` knows its columns before the first message then. The table is not changed: one that cannot be
loaded is refused with the reason, and one without provenance columns gets them by `blockhouse schema apply`. An
aggregator of the pipeline, which has to run, records the columns once every live replica has them. A table that is
registered already stays as it is.

Exit codes: 0 it is registered; 1 it is not, with the reason.

Example: blockhouse schema add clicks --config aggregator.yaml
"""


def add(
    table: Annotated[str, typer.Argument(help="`database.table`, or a table of the configured database.")],
    config: Annotated[Path, typer.Option("--config", "-c", help="YAML configuration of an aggregator of the shard.")],
    timeout: Annotated[float, typer.Option(min=1, help="Seconds to wait for an aggregator.")] = 30.0,
) -> None:
    settings = load(config)
    name = table if "." in table else f"{settings.clickhouse.database}.{table}"
    _check(settings, name)
    with Session(settings.zookeeper) as session:
        revision = recorded(SchemaStore(session), name, timeout)
    typer.echo(f"table {name} is registered: revision {revision.number} with {len(revision.columns)} columns")


add.__doc__ = _HELP


def _check(settings: AggregatorConfig, name: str) -> None:
    """Before anything is recorded: ids are never taken back. Raises Permanent."""
    with Replica(settings.clickhouse) as replica:
        server = describe(replica, *name.split(".", 1))
        if server is None:
            text = f"{replica.name} has no table {name}: `blockhouse schema apply` creates it"
            raise Permanent(text, reason="UnknownTable")
    check_loadable(settings)(extend(TableHistory(id=1, name=name), server.columns), server)


def recorded(store: SchemaStore, name: str, timeout: float) -> Revision:
    """The current revision of a table, which is registered. Waits `timeout` seconds for the aggregator that records
    it, and raises Retryable when none did."""
    store.ensure_id(name)
    tries = Retrying(
        retry=retry_if_result(lambda revision: revision is None),
        stop=stop_after_delay(timeout),
        wait=wait_fixed(POLL),
        retry_error_callback=lambda _: None,
    )
    revision: Revision | None = tries(lambda: store.ensure_id(name).current)
    if revision is None:
        text = (
            f"table {name} has a number, but no aggregator recorded its columns in {timeout:g} s: is one"
            " of the pipeline running, and does it report the table in `blockhouse status`? Run it again to continue"
        )
        raise Retryable(text, after=timeout)
    return revision
