"""From what the broker, ZooKeeper and the log report to a state to continue from, or to a reason not to.

The table of abnormal cases in `docs/protocol.md` is this module: every branch names its case with an example.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from blockhouse.metadata.model import Metadata, Window
from blockhouse_aggregator.protocol.events import Alarm
from blockhouse_aggregator.protocol.foreign import ForeignTable, bounds
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState, TableState

MARKER_MISSING = "MarkerMissing"
LOG_TRUNCATED = "LogTruncated"
OFFSETS_WENT_BACK = "OffsetsWentBack"


@dataclass(frozen=True, slots=True)
class Facts:
    """What is known of a stream when it is assigned.

    `offset` and `metadata` as committed (None: no committed offset / metadata empty), `unreadable` why the metadata
    could not be decoded (else empty), `log_begin` and `log_end` the log's bounds, `topic_id` its identity (empty: the
    brokers give topics none), `marker_topic_id` the topic id under which the stream was started (None: never),
    `marker_seq` and `marker_position` of the newest metadata of which a block may be stored (-1: not known), `history`
    the identity of the schema history and `marker_history` of the one whose table ids the metadata uses (empty: not
    known), `marker_former` the ids of topics of its name that the stream was of before, `marker_restarting` the reason
    that was accepted when an owner last began afresh and did not mark it (empty: none), `accepted` the reason an
    operator has accepted for this stream (`streams accept`), `accepted_from` where it shall then start (None: at the
    earliest offset) and `accepted_by` who has, when and why (empty: not known). `cut`: the log, as it is now, does not
    reach the position in the leader epoch the metadata records. `foreign` are the tables of metadata in another
    writer's format, which becomes `metadata`, and `adopted`, when its log was surveyed.
    """

    offset: int | None
    metadata: Metadata | None
    unreadable: str
    log_begin: int
    log_end: int
    topic_id: str
    compacted: bool
    marker_topic_id: str | None
    marker_seq: int = -1
    marker_position: int = -1
    marker_history: str = ""
    marker_former: tuple[str, ...] = ()
    marker_restarting: str = ""
    history: str = ""
    accepted: str = ""
    accepted_from: int | None = None
    accepted_by: str = ""
    cut: bool = False
    foreign: tuple[ForeignTable, ...] | None = None
    adopted: bool = False

    @property
    def marker_of_former_topic(self) -> bool:
        """Of a stream that continues: an owner began it on the present topic, as was accepted, and did not mark it.
        Or what is committed was read before the marker, of which it is a later topic by now."""
        return bool(self.topic_id) and self.marker_topic_id not in (None, "", self.topic_id)


@dataclass(frozen=True, slots=True)
class NeedsSurvey:
    """The metadata is another writer's: count what the log holds of [start, stop), `adopt` it, and decide again."""

    start: int
    stop: int


@dataclass(frozen=True, slots=True)
class Stop:
    """The stream must not be consumed: continuing could lose or double rows. `reason` is CamelCase."""

    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class Start:
    """The stream continues from `state`; `alarms` are raised once."""

    state: StreamState
    alarms: tuple[Alarm, ...] = ()


def take_over(facts: Facts, *, replica: str, epoch: int, now_ms: int) -> Start | Stop | NeedsSurvey:
    """Decide how to continue a stream. Total: every combination of facts has an answer."""
    if facts.compacted:
        return Stop("CompactedTopic", "a compacted topic drops messages on its own: blocks could not be rebuilt")
    stop = refusal(facts)
    if stop is not None:
        if facts.accepted != stop.reason and not _begun_and_unmarked(facts, stop):
            return stop
        if stop.reason == MARKER_MISSING and facts.metadata is not None:
            return _adopted_marker(_resume(facts, facts.metadata, replica, epoch, now_ms), facts.accepted_by)
        start = max(facts.log_begin, facts.log_begin if facts.accepted_from is None else facts.accepted_from)
        by = facts.accepted_by or "an operator"
        text = f"{facts.accepted} was accepted by {by}: starting afresh at offset {start}"
        return Start(_fresh(facts, start, replica, epoch, now_ms), (Alarm("StreamRestarted", text),))
    if facts.foreign is not None and facts.offset is not None and not facts.adopted:
        return NeedsSurvey(*bounds(facts.offset, facts.foreign, facts.log_begin))
    if facts.metadata is not None:
        return _resume(facts, facts.metadata, replica, epoch, now_ms)
    # Never started. Example: offset=None -> the log's begin; offset=700 set on purpose by a tool -> 700.
    start = facts.log_begin if facts.offset is None else facts.offset
    return _skip_expired(_fresh(facts, start, replica, epoch, now_ms), facts.log_begin)


def _begun_and_unmarked(facts: Facts, stop: Stop) -> bool:
    """Whether the owner before began afresh, as was accepted, and died before it marked that. Example: LogTruncated was
    accepted from 40; number 1 at 52 is committed, nothing of it stored, and the marker states number 812 at 90211."""
    return stop.reason == OFFSETS_WENT_BACK and facts.accepted == facts.marker_restarting != ""


def refusal(facts: Facts) -> Stop | None:
    """The first reason not to trust what is committed, or None. What is committed and the marker have to be of one
    moment: an offset that was read before a first commit beside the marker that followed it looks expired."""
    metadata = facts.metadata
    if facts.unreadable:
        return Stop("MetadataUnreadable", f"{facts.unreadable}; it is not overwritten")
    started = facts.marker_topic_id is not None
    # Metadata taken over from a format without topic ids has none: then the marker, if any, must agree.
    recorded_id = (metadata.topic_id if metadata is not None else "") or facts.marker_topic_id
    if recorded_id and facts.topic_id and recorded_id != facts.topic_id:
        # Deleted and created again: offsets of the two topics must never be mixed. Recorded id X, now Y.
        return Stop("TopicRecreated", f"the stream was started on topic id {recorded_id}, now it is {facts.topic_id}")
    if facts.foreign is not None and metadata is None and facts.offset is not None:
        # Example: A [6, 9] in flight, B (11, 10), but the log ends at 8.
        stop = bounds(facts.offset, facts.foreign, facts.log_begin)[1]
        return Stop(LOG_TRUNCATED, f"{stop} is beyond the log end {facts.log_end}") if stop > facts.log_end else None
    if metadata is None:
        if started and facts.offset is None:
            # The group was empty for longer than offsets.retention.minutes: starting at the earliest would double rows.
            return Stop("OffsetsExpired", "the stream was started before, but the group has no committed offset")
        if started:
            return Stop("OffsetsReset", f"offset {facts.offset} was committed without metadata by another client")
        if facts.offset is not None and facts.offset > facts.log_end:
            return Stop("OffsetBeyondEnd", f"committed offset {facts.offset} is beyond the log end {facts.log_end}")
        return None
    if facts.offset != metadata.committed_offset and not facts.adopted:
        return Stop(
            "OffsetsReset",
            f"offset {facts.offset} does not belong to its metadata ({metadata.committed_offset})",
        )
    if facts.adopted and facts.marker_topic_id is None:
        return _beyond(facts, metadata)  # the first takeover from another writer: no marker is expected
    return _against_marker(facts, metadata) or _beyond(facts, metadata)


def _against_marker(facts: Facts, metadata: Metadata) -> Stop | None:
    """Whether ZooKeeper remembers more of the stream than its offset and metadata, or nothing where it should."""
    of_former = bool(facts.marker_topic_id) and metadata.topic_id not in ("", facts.marker_topic_id)
    if (facts.marker_topic_id is None or of_former) and not _nothing_stored(metadata):
        # The ensemble was set up again, or restored from before the stream began. Without the marker it cannot be known
        # whether offset and metadata went back.
        there = f"only that of topic id {facts.marker_topic_id}" if of_former else "no marker of the stream"
        text = f"metadata number {metadata.seq} is committed, but ZooKeeper has {there}"
        return Stop(MARKER_MISSING, text)
    if facts.history and facts.marker_history not in ("", facts.history):
        # Set up again in ZooKeeper, with other ids: table 7 of the metadata may be another table there.
        return Stop(
            "SchemaHistoryReplaced", "the metadata's table ids are of another schema history than the present one"
        )
    if of_former:
        return None  # TopicRecreated was accepted, and that owner died between its first commit and the marker
    if metadata.seq < facts.marker_seq or metadata.position < facts.marker_position:
        # A restored disk of the brokers, or a tool that committed an old offset with its metadata: number 12 at 600,
        # but a block of number 15 at 900 may be stored.
        text = f"number {metadata.seq} at position {metadata.position} is committed, but blocks of number"
        return Stop(OFFSETS_WENT_BACK, f"{text} {facts.marker_seq} at {facts.marker_position} may be stored")
    return None


def _nothing_stored(metadata: Metadata) -> bool:
    """Every owner so far died between its first commit and the marker, without which no block is inserted: what was
    sealed is all in flight still. Example: number 1 seals 18 messages, number 2 is the next owner's proof."""
    window = metadata.window
    closed = metadata.seq > 1 and not (window.sealed or window.dead or window.holes)
    return not closed and window.sealed == sum(e.in_flight.messages for e in metadata.tables if e.in_flight)


def _beyond(facts: Facts, metadata: Metadata) -> Stop | None:
    """Whether the log still has what was read of it."""
    if metadata.position > facts.log_end:
        # An unclean election or a restored disk: P=900, log end 850.
        return Stop(LOG_TRUNCATED, f"position {metadata.position} is beyond the log end {facts.log_end}")
    if facts.cut:
        # Truncated and written again: P=900 was read in epoch 7, which now ends at 850, though the log ends at 1,200.
        text = f"position {metadata.position} was read in leader epoch {metadata.leader_epoch}, which now ends below it"
        return Stop(LOG_TRUNCATED, f"{text}: other messages took the place of what was read")
    return None


def _adopted_marker(start: Start, by: str) -> Start:
    """An operator knows why the marker is missing: the stream continues, and gets one with its next commit."""
    text = f"{by or 'an operator'} let the stream continue without a marker: if its offset went back, rows are doubled"
    return replace(start, alarms=(*start.alarms, Alarm("MarkerAdopted", text)))


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
    """Continue from readable metadata: in-flight blocks are replayed, everything else continues where it was."""
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
    """Retention took messages that were not read: they are counted as holes and reported, never skipped silently.

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
