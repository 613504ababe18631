"""Rows of messages that a log has lost: they stay where they are, and answer for the messages that have their offsets
now, should an owner die with a block of these in flight."""

from __future__ import annotations

from collections.abc import Iterator

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import BlockhouseError
from blockhouse.schema.model import TOPIC_COLUMN
from blockhouse.streams import StreamId, incarnation
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.names import qualified
from blockhouse_aggregator.clickhouse.tables import describe
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session


def leftover_rows(
    settings: AggregatorConfig, session: Session, stream: StreamId, topic_id: str, begin: int
) -> Iterator[str]:
    """Lines that name each table with rows of the stream's offsets from `begin` on, and how to delete them; or why
    that could not be looked up."""
    try:
        found = list(_tables(settings, session, stream, topic_id, begin))
    except BlockhouseError as error:
        yield f"Whether rows of messages that the log has lost are still there is not known: {error}"
        return
    if found:
        yield (
            f"Rows of offsets from {begin} on are there already, of messages that the log has lost. Where other"
            " messages take their offsets they may be taken for the rows of these: delete them first, on one replica of"
            " the shard, unless those messages are of other tables:"
        )
        yield from found


def _tables(settings: AggregatorConfig, session: Session, stream: StreamId, topic_id: str, begin: int) -> Iterator[str]:
    with Replica(settings.clickhouse, timeout=120) as replica:
        for history in SchemaStore(session).all():
            database, _, name = history.name.partition(".")
            table = describe(replica, database, name)
            if table is None or not table.shows_blocks:
                continue
            where = (
                f"_kafka_cluster = '{stream.cluster}' AND _kafka_partition = {stream.partition}"
                f" AND _kafka_offset >= {begin}"
            )
            if TOPIC_COLUMN in table.provenance:
                where += f" AND {TOPIC_COLUMN} = '{incarnation(stream.topic, topic_id)}'"
            of = qualified(database, name)
            ((rows,),) = replica.query(f"SELECT count() FROM {of} PREWHERE _kafka_offset >= {begin} WHERE {where}")
            if rows:
                yield f"  ALTER TABLE {of} DELETE WHERE {where};  -- {rows} rows"
