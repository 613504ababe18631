"""Taking a stream over: gather the facts, let the protocol decide, and wait, loudly, while it must not be consumed."""

from __future__ import annotations

import re

from blockhouse.errors import BlockhouseError
from blockhouse.metadata import codec
from blockhouse.metadata.errors import MetadataUnreadable
from blockhouse.metadata.model import Metadata
from blockhouse.streams import StreamId
from blockhouse_aggregator.protocol import takeover
from blockhouse_aggregator.runtime.ports import Outside, StreamFacts

_ACCEPTED = re.compile(r"(\w+)(?: from (\d+))?")


async def take_over(
    outside: Outside, stream: StreamId, *, replica: str, epoch: int, now_ms: int
) -> tuple[takeover.Facts, takeover.Start | takeover.Stop]:
    """The facts and the decision. An operator's acceptance that answers no stop is out of date and taken away; one that
    allows a start is used up by its first commit: a crash before that must not ask again.

    Raises Retryable while the facts cannot be had.
    """
    known = await outside.group.facts(stream, epoch)
    marker = await outside.markers.started_topic_id(stream)
    accepted = await outside.markers.accepted(stream)
    facts = facts_of(known, marker, accepted)
    decision = takeover.take_over(facts, replica=replica, epoch=epoch, now_ms=now_ms)
    if accepted and isinstance(decision, takeover.Start) and not restarted(decision):
        await outside.markers.consume_acceptance(stream)
    return facts, decision


def restarted(decision: takeover.Start | takeover.Stop) -> bool:
    """Whether the stream starts afresh because an operator accepted what stopped it."""
    return isinstance(decision, takeover.Start) and any(a.reason == "StreamRestarted" for a in decision.alarms)


def stop_of(error: BlockhouseError) -> takeover.Stop:
    """An error that waiting alone does not mend, as a reason to stop."""
    return takeover.Stop(getattr(error, "reason", "") or getattr(error, "on", "Blocked"), str(error))


def facts_of(known: StreamFacts, marker: str | None, accepted: str) -> takeover.Facts:
    """Decode what is committed. An empty string is what commits without metadata carry. `accepted` is a reason, or
    `REASON from OFFSET`."""
    answer = _ACCEPTED.fullmatch(accepted)
    metadata: Metadata | None = None
    unreadable = ""
    if known.metadata:
        try:
            decoded = codec.decode(known.metadata)
        except MetadataUnreadable as error:
            unreadable = str(error)
        else:
            if isinstance(decoded, Metadata):
                metadata = decoded
            else:
                unreadable = f"metadata of another writer, version {decoded.version}"
    return takeover.Facts(
        offset=known.offset,
        metadata=metadata,
        unreadable=unreadable,
        log_begin=known.log_begin,
        log_end=known.log_end,
        topic_id=known.topic_id,
        compacted=known.compacted,
        marker_topic_id=marker,
        accepted=answer[1] if answer else "",
        accepted_from=int(answer[2]) if answer and answer[2] else None,
    )
