"""Taking a stream over: gather the facts, let the protocol decide, and wait, loudly, while it must not be consumed."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import structlog

from blockhouse.errors import BlockhouseError
from blockhouse.metadata import codec, ebay
from blockhouse.metadata.ebay import EbayMetadata
from blockhouse.metadata.errors import MetadataUnreadable
from blockhouse.metadata.model import Metadata
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import StreamMarker
from blockhouse_aggregator.protocol import foreign, takeover
from blockhouse_aggregator.protocol.state import TableState
from blockhouse_aggregator.runtime.ports import Ports, StreamFacts
from blockhouse_aggregator.runtime.stream.acceptance import accepted
from blockhouse_aggregator.runtime.tables.catalog import Catalog

log = structlog.get_logger(__name__)


async def take_over(
    ports: Ports, catalog: Catalog, stream: StreamId, *, replica: str, owner: str, epoch: int, now_ms: int
) -> tuple[takeover.Facts, takeover.Start | takeover.Stop]:
    """The facts and the decision. An operator's acceptance that answers no stop is out of date and deleted; one that
    allows a start is used up by the marker behind its first commit: a crash before that must not ask again. Until then
    the start is claimed for `owner`, a name that no other owner has; so is what an owner before began and did not mark.

    Raises Retryable while the facts cannot be had, Blocked when the schema history lacks a table of the metadata.
    """
    known, marker, facts = await _consistent(ports, stream, epoch)
    decided = await ports.markers.acceptance(stream)
    facts = accepted(facts, decided)
    decision = takeover.take_over(facts, replica=replica, epoch=epoch, now_ms=now_ms)
    if isinstance(decision, takeover.NeedsSurvey):
        facts = await _adopt(ports, catalog, stream, facts, foreign_tables(known), decision, now_ms)
        decision = takeover.take_over(facts, replica=replica, epoch=epoch, now_ms=now_ms)
    assert not isinstance(decision, takeover.NeedsSurvey), "adopted metadata needs no survey"
    if isinstance(decision, takeover.Start):
        await catalog.know({t.table: _needed(t) for t in decision.state.tables})
    if claims(facts, decision):
        await ports.markers.claim_restart(stream, marker, owner, facts.accepted or facts.marker_restarting)
    if isinstance(decision, takeover.Start) and decided is not None and not restarted(decision):
        await ports.markers.consume_acceptance(stream)
    return facts, decision


async def present_facts(ports: Ports, stream: StreamId, epoch: int) -> takeover.Facts:
    """The facts as they are now, without what anybody has accepted. Raises Retryable, Blocked once `epoch` is over."""
    _, _, facts = await _consistent(ports, stream, epoch)
    return facts


async def _consistent(
    ports: Ports, stream: StreamId, epoch: int
) -> tuple[StreamFacts, StreamMarker | None, takeover.Facts]:
    """What Kafka and the marker state. Where that is a reason to stop, or of two topics, two reads agree about it: a
    member that was frozen between the offset and the marker holds an offset from before another owner's work and a
    marker from after it."""
    known, marker, facts = await _gathered(ports, stream, epoch)
    while takeover.refusal(facts) is not None or facts.marker_of_former_topic:
        before = (known.offset, known.metadata, marker)
        known, marker, facts = await _gathered(ports, stream, epoch)
        if (known.offset, known.metadata, marker) == before:
            break
    return known, marker, facts


async def _gathered(
    ports: Ports, stream: StreamId, epoch: int
) -> tuple[StreamFacts, StreamMarker | None, takeover.Facts]:
    known = await ports.group.facts(stream, epoch)
    marker = await ports.markers.marker(stream)
    facts = replace(facts_of(known, marker), history=await ports.schemas.identity())
    recorded = facts.metadata
    if recorded is not None and may_be_cut(facts, recorded, known.leader_epoch):
        reached = await ports.group.reaches(stream, recorded.position, recorded.leader_epoch)
        facts = replace(facts, cut=not reached)
    return known, marker, facts


def may_be_cut(facts: takeover.Facts, recorded: Metadata, leader_epoch: int) -> bool:
    """A log is cut by an election only; of a position outside of it, or of another topic, the epoch states nothing."""
    within = facts.log_begin <= recorded.position <= facts.log_end and recorded.topic_id == facts.topic_id
    return within and 0 <= recorded.leader_epoch < leader_epoch


async def _adopt(
    ports: Ports,
    catalog: Catalog,
    stream: StreamId,
    facts: takeover.Facts,
    ranges: Mapping[str, tuple[int, int]],
    needed: takeover.NeedsSurvey,
    now_ms: int,
) -> takeover.Facts:
    """Turn another writer's metadata into ours, by what the log holds."""
    database = catalog.database
    named = {name if "." in name else f"{database}.{name}": found for name, found in ranges.items()}
    counts = await ports.group.survey(stream, needed.start, needed.stop, named)
    ids = {name: await catalog.id_of(name) for name in (*named, *counts)}
    tables = tuple(foreign.ForeignTable(ids[n], *found, _revision(catalog, n)) for n, found in named.items())
    seen = tuple(
        foreign.Surveyed(ids[n], c.stored, c.inside, c.beyond, c.first_beyond, c.oldest_ms) for n, c in counts.items()
    )
    survey = foreign.Survey(needed.start, needed.stop, seen)
    seq = max(facts.marker_seq, 0)
    metadata = foreign.adopt(tables, survey, topic_id=facts.topic_id, seq=seq, now_ms=now_ms)
    log.info("stream.adopted", stream=str(stream), offset=facts.offset, position=metadata.position, tables=len(ids))
    return replace(facts, metadata=metadata, adopted=True)


def _needed(entry: TableState) -> int:
    """The revision its block was encoded with; 0 without a block or for a foreign one: its table may yet be created."""
    return 0 if entry.block is None or entry.block.intent.foreign else entry.block.intent.revision


def _revision(catalog: Catalog, table: str) -> int:
    """The revision a foreign block of the table is rebuilt with: the current one, else the first there will be."""
    known = catalog.known(table)
    return known.history.current.number if known is not None and known.history.current is not None else 1


def restarted(decision: takeover.Start | takeover.Stop) -> bool:
    """Whether the stream starts, afresh or without its marker, because an operator accepted what stopped it."""
    return isinstance(decision, takeover.Start) and bool(acceptance_of(decision))


def claims(facts: takeover.Facts, decision: takeover.Start | takeover.Stop) -> bool:
    """Whether the owner claims the marker before it commits: it begins the stream, or continues what an owner before it
    began, as was accepted, and did not mark. That one can mark it no more then."""
    left_unmarked = facts.marker_of_former_topic and bool(facts.marker_restarting)
    return isinstance(decision, takeover.Start) and (left_unmarked or restarted(decision))


def acceptance_of(start: takeover.Start) -> str:
    """What an operator accepted so that it could start, with who did and why; empty: nothing."""
    accepted = ("StreamRestarted", "MarkerAdopted")
    return next((alarm.message for alarm in start.alarms if alarm.reason in accepted), "")


def sole_topic(facts: takeover.Facts, decision: takeover.Start | takeover.Stop) -> bool:
    """Whether no topic but the present one was ever read under the stream's name, as far as ZooKeeper remembers."""
    if facts.marker_topic_id is None:
        return not restarted(decision)
    return not facts.marker_former and facts.marker_topic_id in ("", facts.topic_id)


def stop_of(error: BlockhouseError) -> takeover.Stop:
    """An error that waiting alone does not fix, as a reason to stop."""
    return takeover.Stop(error.reason or "Blocked", str(error))


def facts_of(known: StreamFacts, marker: StreamMarker | None) -> takeover.Facts:
    """Decode what is committed. An empty string is what commits without metadata carry."""
    metadata: Metadata | None = None
    other: tuple[foreign.ForeignTable, ...] | None = None
    unreadable = ""
    try:
        decoded = _decoded(known)
    except MetadataUnreadable as error:
        unreadable = str(error)
    else:
        if isinstance(decoded, EbayMetadata):  # ids and revisions are of no interest before the survey
            other = tuple(foreign.ForeignTable(n, t.begin, t.end, 0) for n, t in enumerate(decoded.tables.values(), 1))
        else:
            metadata = decoded
    return takeover.Facts(
        offset=known.offset,
        metadata=metadata,
        unreadable=unreadable,
        log_begin=known.log_begin,
        log_end=known.log_end,
        topic_id=known.topic_id,
        compacted=known.compacted,
        marker_topic_id=None if marker is None else marker.topic_id,
        marker_seq=-1 if marker is None else marker.seq,
        marker_position=-1 if marker is None else marker.position,
        marker_history="" if marker is None else marker.history,
        marker_former=() if marker is None else marker.former,
        marker_restarting="" if marker is None else marker.restarting,
        foreign=other,
    )


def foreign_tables(known: StreamFacts) -> Mapping[str, tuple[int, int]]:
    """(begin, end) by table name, of metadata in another writer's format; empty for any other."""
    decoded = _decoded(known)
    return {n: (t.begin, t.end) for n, t in decoded.tables.items()} if isinstance(decoded, EbayMetadata) else {}


def _decoded(known: StreamFacts) -> Metadata | EbayMetadata | None:
    """None without metadata. Another writer's must belong to its offset: nothing else could show that it does not."""
    if not known.metadata:
        return None
    decoded = codec.decode(known.metadata)
    return ebay.decode(known.metadata, known.offset) if isinstance(decoded, EbayMetadata) else decoded
