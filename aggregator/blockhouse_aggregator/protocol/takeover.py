"""From what the broker, ZooKeeper and the log say to a state one may go on from, or to a reason not to.

The table of abnormal cases in `docs/protocol.md` is this module: every branch names its case with an example.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from blockhouse.metadata.model import Metadata, Window
from blockhouse_aggregator.protocol.events import Alarm
from blockhouse_aggregator.protocol.foreign import ForeignTable, bounds
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState, TableState


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a stream when it is assigned.

    `offset` and `metadata` as committed (None: no committed offset / metadata empty), `unreadable` why the metadata
    could not be decoded (else empty), `log_begin` and `log_end` the log's bounds, `marker_topic_id` the topic id under
    which the stream was started (None: never), `accepted` the reason an operator has accepted for this stream
    (`streams accept`) and `accepted_from` where it shall then start (None: at the earliest offset). `epoch_end` is
    where the log, as it is now, ends the leader epoch the metadata records (None: not known). `foreign` are the tables
    of metadata in another writer's format, which becomes `metadata`, and `adopted`, when its log was surveyed.
    """

    offset: int | None
    metadata: Metadata | None
    unreadable: str
    log_begin: int
    log_end: int
    topic_id: str
    compacted: bool
    marker_topic_id: str | None
    accepted: str = ""
    accepted_from: int | None = None
    epoch_end: int | None = None
    foreign: tuple[ForeignTable, ...] | None = None
    adopted: bool = False


@dataclass(frozen=True, slots=True)
class NeedsSurvey:
    """The metadata is another writer's: count what the log holds of [start, stop), `adopt` it, and decide again."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The stream must not be consumed: going on could lose or double rows. `reason` is CamelCase."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Start:
    state: StreamState
    alarms: tuple[Alarm, ...] = ()


def take_over(facts: Facts, *, replica: str, epoch: int, now_ms: int) -> Start | Stop | NeedsSurvey:
    """Decide how to go on with a stream. Total: every combination of facts has an answer."""
    if facts.compacted:
        return Stop("CompactedTopic", "a compacted topic drops messages on its own: blocks could not be rebuilt")
    stop = _refusal(facts)
    if stop is not None:
        if facts.accepted != stop.reason:
            return stop
        start = max(facts.log_begin, facts.log_begin if facts.accepted_from is None else facts.accepted_from)
        text = f"{stop.reason} was accepted by an operator: starting afresh at offset {start}"
        return Start(_fresh(facts, start, replica, epoch, now_ms), (Alarm("StreamRestarted", text),))
    if facts.foreign is not None and facts.offset is not None and not facts.adopted:
        return NeedsSurvey(*bounds(facts.offset, facts.foreign, facts.log_begin))
    if facts.metadata is not None:
        return _resume(facts, facts.metadata, replica, epoch, now_ms)
    # Never started. Example: offset=None -> the log's begin; offset=700 set on purpose by a tool -> 700.
    start = facts.log_begin if facts.offset is None else facts.offset
    return _skip_expired(_fresh(facts, start, replica, epoch, now_ms), facts.log_begin)


def _refusal(facts: Facts) -> Stop | None:
    """The first reason not to trust what is committed, or None."""
    metadata = facts.metadata
    if facts.unreadable:
        return Stop("MetadataUnreadable", f"{facts.unreadable}; it is not overwritten")
    started = facts.marker_topic_id is not None
    # Metadata taken over from a format without topic ids has none: then the marker, if any, must agree.
    recorded_id = (metadata.topic_id if metadata is not None else "") or facts.marker_topic_id
    if recorded_id and recorded_id != facts.topic_id:
        # Deleted and created again: offsets of the two topics must never be mixed. Recorded id X, now Y.
        return Stop("TopicRecreated", f"the stream was started on topic id {recorded_id}, now it is {facts.topic_id}")
    if facts.foreign is not None and metadata is None and facts.offset is not None:
        # Example: A [6, 9] in flight, B (11, 10), but the log ends at 8.
        stop = bounds(facts.offset, facts.foreign, facts.log_begin)[1]
        return Stop("LogTruncated", f"{stop} is beyond the log end {facts.log_end}") if stop > facts.log_end else None
    if metadata is None:
        if started and facts.offset is None:
            # The group was empty for longer than offsets.retention.minutes: starting at the earliest would double rows.
            return Stop("OffsetsExpired", "the stream was started before, but the group has no committed offset")
        if started:
            return Stop("OffsetsReset", f"offset {facts.offset} was committed without metadata by somebody else")
        if facts.offset is not None and facts.offset > facts.log_end:
            return Stop("OffsetBeyondEnd", f"committed offset {facts.offset} is beyond the log end {facts.log_end}")
        return None
    if facts.offset != metadata.committed_offset and not facts.adopted:
        return Stop(
            "OffsetsReset",
            f"offset {facts.offset} does not belong to its metadata ({metadata.committed_offset})",
        )
    if metadata.position > facts.log_end:
        # An unclean election or a restored disk: P=900, log end 850.
        return Stop("LogTruncated", f"position {metadata.position} is beyond the log end {facts.log_end}")
    if facts.epoch_end is not None and metadata.position > facts.epoch_end:
        # Truncated and written again: P=900 was read in epoch 7, which now ends at 850, though the log ends at 1,200.
        text = f"position {metadata.position} was read in leader epoch {metadata.leader_epoch}, which now ends at"
        return Stop("LogTruncated", f"{text} {facts.epoch_end}: other messages took the place of what was read")
    return None


def _fresh(facts: Facts, start: int, replica: str, epoch: int, now_ms: int) -> StreamState:
    return StreamState(
        replica=replica,
        epoch=epoch,
        topic_id=facts.topic_id,
        leader_epoch=-1,
        seq=0,
        position=start,
        window=Window(reference=start),
        window_opened_ms=now_ms,
    )


def _resume(facts: Facts, metadata: Metadata, replica: str, epoch: int, now_ms: int) -> Start:
    """Go on from readable metadata: in-flight blocks are replayed, everything else continues where it was."""
    state = StreamState(
        replica=replica,
        epoch=epoch,
        topic_id=facts.topic_id,
        leader_epoch=metadata.leader_epoch,
        seq=metadata.seq,
        position=metadata.position,
        window=metadata.window,
        window_opened_ms=now_ms,
        tables=tuple(
            TableState(
                e.table,
                Block(e.in_flight, Stage.REPLAY, fresh=False) if e.in_flight else None,
                e.cursor,
                e.pending,
            )
            for e in metadata.tables
        ),
        recorded=None if facts.adopted else metadata,
    )
    return _skip_expired(state, facts.log_begin)


def _skip_expired(state: StreamState, log_begin: int) -> Start:
    """Retention took messages nobody has read: they are counted as holes and reported, never passed over in silence.

    In-flight blocks that begin below the log are left as they are: the replay finds out and provenance decides.
    """
    alarms: list[Alarm] = []
    if state.position < log_begin:
        lost = log_begin - state.position
        text = f"offsets {state.position}..{log_begin - 1} left the log before they were read"
        alarms.append(Alarm("MessagesExpired", text))
        window = replace(state.window, holes=state.window.holes + lost)
        state = replace(state, position=log_begin, window=window)
    for table in state.tables:
        if table.cursor is not None and table.cursor < log_begin:
            # How many of its pending messages are gone is only known after the rescan, which counts them as holes.
            alarms.append(
                Alarm(
                    "LaggingMessagesExpired",
                    f"its offsets {table.cursor}..{log_begin - 1} left the log",
                    table.table,
                )
            )
            state = state.with_table(replace(table, cursor=log_begin))
    return Start(state, tuple(alarms))
