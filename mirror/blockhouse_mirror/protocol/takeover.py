"""Where a partition continues, or why it stops: from its position, what both clusters hold now, and the tail. Pure.

Nothing is skipped silently: a topic of another id, a log that was cut, retention that was faster are a stop with a
reason, or, by `onGap: Skip`, a start elsewhere whose size is counted (M4).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from blockhouse_mirror.protocol.position import Position
from blockhouse_mirror.protocol.provenance import Origin


class Reason(StrEnum):
    """Why a partition is not mirrored any more, until a person decides."""

    SOURCE_REPLACED = "SourceClusterReplaced"
    SOURCE_RECREATED = "SourceTopicRecreated"
    SOURCE_TRUNCATED = "SourceTruncated"
    RETENTION = "RetentionOvertook"
    TARGET_RECREATED = "TargetTopicRecreated"
    TARGET_TRUNCATED = "TargetTruncated"
    REFUSED = "RecordRefused"


CREATED_AGAIN = frozenset({Reason.SOURCE_RECREATED, Reason.TARGET_RECREATED})


@dataclass(frozen=True, slots=True)
class Log:
    """One partition as its cluster holds it now: offsets [begin, end)."""

    cluster: str
    topic_id: str
    begin: int
    end: int


@dataclass(frozen=True, slots=True)
class Start:
    """Continue at source `offset`; `skipped` records, at most, were lost to `gap` before it."""

    offset: int
    epoch: int
    tail: int
    skipped: int = 0
    gap: Reason | None = None


@dataclass(frozen=True, slots=True)
class Stop:
    """Do nothing until a person decides."""

    reason: Reason
    message: str


def decide(position: Position, source: Log, target: Log, *, skip: bool) -> Start | Stop:
    """Where to continue from a position. `skip`: by the user's word gaps are counted and passed."""
    found = _gap(position, source, target)
    if found is None:
        return Start(position.offset, position.epoch, position.tail)
    if not skip or found.reason is Reason.SOURCE_REPLACED:
        return found
    if found.reason in (Reason.TARGET_RECREATED, Reason.TARGET_TRUNCATED):
        # What the target has lost is still in the source, as far as that reaches back: mirror it again.
        return Start(source.begin, -1, target.end, gap=found.reason)
    if found.reason is Reason.RETENTION:
        # What a former task wrote behind the position is still the tail.
        return Start(source.begin, -1, position.tail, source.begin - position.offset, found.reason)
    return Start(source.begin, -1, target.end, 0, found.reason)


def _gap(position: Position, source: Log, target: Log) -> Stop | None:
    if position.cluster != source.cluster:
        return Stop(
            Reason.SOURCE_REPLACED,
            f"the source is cluster {source.cluster} now, it was {position.cluster}: its address leads to another one",
        )
    if position.topic_id != source.topic_id:
        return Stop(
            Reason.SOURCE_RECREATED,
            f"the source topic has id {source.topic_id} now, it was {position.topic_id}: it was created again",
        )
    if position.target_topic_id != target.topic_id:
        return Stop(
            Reason.TARGET_RECREATED,
            f"the target topic has id {target.topic_id} now, it was {position.target_topic_id}: it was created again",
        )
    if position.tail > target.end:
        return Stop(
            Reason.TARGET_TRUNCATED,
            f"the target ends at offset {target.end}, below {position.tail}, which it had acknowledged",
        )
    if position.offset > source.end:
        return Stop(
            Reason.SOURCE_TRUNCATED,
            f"the source ends at offset {source.end}, below {position.offset}, which was mirrored: its log was cut",
        )
    if position.offset < source.begin:
        lost = source.begin - position.offset
        return Stop(
            Reason.RETENTION,
            f"the source begins at offset {source.begin}: retention has taken up to {lost} records from "
            f"{position.offset} on before they were mirrored",
        )
    return None


def after_tail(start: int, tail: Iterable[Origin], *, cut: bool = False) -> int:
    """The source position after the records that a former task wrote behind the position `start`.

    `tail` has the origins of this very source partition in the order of the target's offsets. The chain ends where a
    record is missing (G1): what follows is mirrored again rather than the gap jumped. `cut`: the target's retention has
    taken the beginning of the tail, so that the first record left may follow on ones that are gone again.
    """
    position = start
    for origin in tail:
        if origin.after > position and not cut:
            break
        cut = False
        position = max(position, origin.offset + 1)
    return position
