"""How far a partition is mirrored, as it is kept on the target beside the data: an offset with metadata. Pure.

The offset is one of the target partition: where the tail begins that a takeover has to read. The metadata is the place
in the source. A target that was set up again has no positions, so nothing is left out there.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from blockhouse.errors import Permanent

_VERSION = "m1"


class Holder(StrEnum):
    """Whether a task may have been writing when the position was written."""

    GRANTED = "g"
    """A task had a grant: it may have written more since, and may still be doing so."""
    SETTLED = "s"
    """None had: its last task confirmed that it ended and all it had sent was acknowledged."""


@dataclass(frozen=True, slots=True)
class Position:
    """Source records in [`start`, `offset`) are on the target, or were left out on purpose. `epoch` is the leader epoch
    of the last of them, -1 if unknown; `tail` the target offset from which on there may be records at or above
    `offset`. `start` is where the mirror began, or continued behind a gap."""

    cluster: str
    topic_id: str
    start: int
    offset: int
    epoch: int
    target_topic_id: str
    tail: int
    holder: Holder = Holder.SETTLED

    def at(self, offset: int, epoch: int, tail: int, holder: Holder) -> Position:
        """Further on, of the same topics."""
        return replace(self, offset=offset, epoch=epoch, tail=tail, holder=holder)


def encode(position: Position) -> str:
    """The metadata; the offset it is committed with is `position.tail`."""
    fields = (
        _VERSION,
        position.cluster,
        position.topic_id,
        position.start,
        position.offset,
        position.epoch,
        position.target_topic_id,
        position.holder.value,
    )
    return " ".join(map(str, fields))


def decode(tail: int, metadata: str) -> Position:
    """Raises Permanent for what no mirror of this version has written."""
    parts = metadata.split(" ")
    try:
        version, cluster, topic_id, start, offset, epoch, target_topic_id, holder = parts
        if version != _VERSION:
            raise ValueError(version)
        numbers = int(start), int(offset), int(epoch)
        return Position(cluster, topic_id, *numbers, target_topic_id, tail, Holder(holder))
    except ValueError as error:
        raise Permanent(
            f"position {metadata[:80]!r} is not one that this version of the mirror writes: another program commits to "
            "the mirror's group, or a newer version did; nothing is mirrored from it",
            reason="PositionUnreadable",
        ) from error
