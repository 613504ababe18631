"""`blockhouse streams resolve|recut`: an operator decides about a blocked block where no program can.

Both only record a decision, which the stream's owner carries out and reports; it names the block by its bounds, so that
it can never be taken for one about another block. Must never record what the table itself contradicts.
"""

from __future__ import annotations

import getpass
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_exponential

from blockhouse.config.load import load
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import Blocked, BlockhouseError, Retryable
from blockhouse.metadata import codec
from blockhouse.metadata.model import InFlight, Metadata
from blockhouse.streams import StreamId, incarnation
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.presence import Origin, StoredRows
from blockhouse_aggregator.clickhouse.provenance import stored_rows
from blockhouse_aggregator.clickhouse.quorum import QuorumProbe, acknowledgeable
from blockhouse_aggregator.clickhouse.tables import ServerTable, describe
from blockhouse_aggregator.coordination.claims import TableClaims
from blockhouse_aggregator.coordination.markers import Decision, Decisions, StreamMarkers, block_subject
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.kafka.group_offsets import committed_offsets

PATIENCE = 10.0
"""Seconds in which a moment is found at which no part of a busy table waits for its quorum."""
Config = Annotated[Path, typer.Option("--config", "-c", help="YAML configuration of an aggregator of the shard.")]
Stream = Annotated[str, typer.Argument(help="cluster/topic/partition")]
Table = Annotated[str, typer.Argument(help="`database.table`, or a table of the configured database.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do it; without this, only show what is known and would happen.")]


class Word(StrEnum):
    """What an operator knows of a block."""

    STORED = "stored"
    ABSENT = "absent"
    ABANDONED = "abandoned"


@dataclass(frozen=True, slots=True)
class Found:
    """A block in flight, and how many of its messages the table shows (None: it does not show that, for `why`)."""

    stream: StreamId
    table: str
    intent: InFlight
    shown: int | None
    why: str = ""

    def __str__(self) -> str:
        block = f"block [{self.intent.begin}, {self.intent.end}] of {self.table} in {self.stream}"
        if self.shown is None:
            return f"{block}: {self.intent.messages} messages; what is stored of it is unknown: {self.why}"
        return f"{block}: {self.shown} of {self.intent.messages} messages are stored"


def resolve(stream: Stream, table: Table, word: Word, config: Config, yes: Yes = False) -> None:
    """Declare whether a blocked block is stored, where the table does not show it: without provenance, or inherited.

    `stored`: it is acknowledged. `absent`: its messages are cut into new blocks and loaded. `abandoned`: what is not
    stored of it is abandoned, for retention took it. A wrong word loses or doubles rows: compare them with the table
    first. Where the table shows it, a word against it is refused.

    Example: blockhouse streams resolve a/events-01/3 db.clicks stored --config aggregator.yaml --yes
    """
    settings = load(config)
    with Session(settings.zookeeper) as session:
        found = find(settings, session, StreamId.parse(stream), table)
        typer.echo(str(found))
        if problem := contradiction(found, word):
            raise typer.BadParameter(problem, param_hint="WORD")
        _record(session, found, word.value, yes)


def recut(stream: Stream, table: Table, config: Config, yes: Yes = False) -> None:
    """Abandon the bounds of a block that can never be inserted as it is, such as one over too many partitions.

    Only when the table shows that no row of it is stored; the owner proves that again, under the table's lock, before
    its messages are cut into new blocks (with the settings and the schema revision of then).

    Example: blockhouse streams recut a/events-01/3 db.clicks --config aggregator.yaml --yes
    """
    settings = load(config)
    with Session(settings.zookeeper) as session:
        found = find(settings, session, StreamId.parse(stream), table)
        typer.echo(str(found))
        if found.shown != 0:
            advice = "it must not be cut again" if found.shown else "see `blockhouse streams resolve`"
            raise typer.BadParameter(f"not proved to be absent: {advice}", param_hint="TABLE")
        _record(session, found, "recut", yes)


def contradiction(found: Found, word: Word) -> str:
    """Why the table shows otherwise; empty when it does not."""
    if found.shown is None:
        return ""
    if word is Word.STORED and found.shown < found.intent.messages:
        return "the table shows that not all of it is stored: use `abandoned` if the rest cannot come back"
    if word is Word.ABSENT and found.shown:
        return "the table shows rows of it: they would be doubled"
    return ""


def find(settings: AggregatorConfig, session: Session, stream: StreamId, table: str) -> Found:
    """The table's block in flight in the committed metadata of the stream."""
    name = table if "." in table else f"{settings.clickhouse.database}.{table}"
    history = SchemaStore(session).get(name)
    cluster = next((c for c in settings.kafka.clusters if c.name == stream.cluster), None)
    if cluster is None or stream.topic != settings.kafka.topic:
        raise typer.BadParameter(f"{stream} is no stream of this shard", param_hint="STREAM")
    committed = committed_offsets(cluster, settings.kafka.group, settings.kafka.topic).get(stream)
    metadata = codec.decode(committed.metadata) if committed is not None and committed.metadata else None
    entries = metadata.tables if isinstance(metadata, Metadata) else ()
    ids = {entry.table: entry.in_flight for entry in entries}
    intent = ids.get(history.id) if history is not None else None
    if intent is None:
        raise typer.BadParameter(f"nothing of {name} is in flight in {stream}", param_hint="TABLE")
    assert history is not None  # it gave the id
    assert isinstance(metadata, Metadata)  # it named the block
    revision = history.revision(intent.encoded_with)
    named = revision is not None and revision.names_topic
    marker = StreamMarkers(session).get(stream)
    origin = Origin(
        stream.cluster,
        stream.partition,
        incarnation(stream.topic, metadata.topic_id) if named else "",
        sole=marker is not None and not marker.former,
    )
    topic = (stream.cluster, incarnation(stream.topic, metadata.topic_id))

    def alone(table: ServerTable) -> bool:
        if table.zookeeper_path is None:
            return True
        claims = TableClaims(session, "blockhouse streams").all(name, table.zookeeper_path)
        return claims.sole(topic, table.provenance)

    probe = QuorumProbe(session.client)
    return _with_evidence(settings, Found(stream, name, intent, None), origin, probe, alone)


def _with_evidence(
    settings: AggregatorConfig,
    block: Found,
    origin: Origin,
    probe: QuorumProbe,
    alone: Callable[[ServerTable], bool],
) -> Found:
    """`alone`: whether rows that name no topic can be no other pipeline's, by the claims on the table."""
    stream, name, intent = block.stream, block.table, block.intent
    if intent.foreign:
        return Found(stream, name, intent, None, "another aggregator sent it, without provenance")
    database, _, short = name.partition(".")
    try:
        with Replica(settings.clickhouse) as replica:
            table = describe(replica, database, short)
            if table is None:
                return Found(stream, name, intent, None, "the server has no such table")
            origin = replace(origin, sole=origin.sole and alone(table))
            rows = rows_that_stay(replica, probe, table, origin, intent)
    except Blocked as error:
        return Found(stream, name, intent, None, str(error))
    except BlockhouseError as error:
        raise typer.BadParameter(f"what is stored cannot be determined now: {error}", param_hint="--config") from error
    return Found(stream, name, intent, len(rows.counts))


@retry(
    retry=retry_if_exception_type(Retryable),
    wait=wait_exponential(0.2, max=1),
    stop=stop_after_delay(PATIENCE),
    reraise=True,
)
def rows_that_stay(
    replica: Replica, probe: QuorumProbe, table: ServerTable, origin: Origin, intent: InFlight
) -> StoredRows:
    """The block's rows, at a moment at which no part waits for its quorum: the rows of one that fails are lost, and
    those of one that this replica has not fetched yet are not seen. Raises Retryable when there is no such moment, or
    rows are in a part that failed; and as `stored_rows`."""
    if table.zookeeper_path is None:
        return stored_rows(replica, table, origin, intent.begin, intent.end)
    before = probe.snapshot(table.zookeeper_path)
    failed = probe.failed_parts(table.zookeeper_path)
    rows = stored_rows(replica, table, origin, intent.begin, intent.end, failed=failed)
    if not acknowledgeable(before, probe.snapshot(table.zookeeper_path)):
        text = "a part waits for its quorum, or has just failed: its rows may still be lost"
        raise Retryable(f"table {table.full_name}: {text}; `blockhouse quorum inspect` shows one that is stuck")
    return rows


def _record(session: Session, found: Found, deed: str, yes: bool) -> None:
    if not yes:
        typer.echo(f"Would be decided: {deed}. Nothing was changed; add --yes to do it.")
        return
    action = f"{deed} {found.intent.begin}-{found.intent.end}"
    decision = Decision(action=action, by=getpass.getuser(), at_ms=time.time_ns() // 1_000_000)
    Decisions(session).put(block_subject(found.stream, found.table), decision)
    typer.echo("Recorded: its owner carries it out when the block is blocked, and logs `BlockDecided`.")
