"""Taking a stream over: gather the facts, let the protocol decide, and wait, loudly, while it must not be consumed."""

from __future__ import annotations

from blockhouse.errors import BlockhouseError
from blockhouse.metadata import codec
from blockhouse.metadata.errors import MetadataUnreadable
from blockhouse.metadata.model import Metadata
from blockhouse.streams import StreamId
from blockhouse_aggregator.protocol import takeover
from blockhouse_aggregator.runtime.ports import Outside, StreamFacts


async def take_over(
    outside: Outside, stream: StreamId, *, replica: str, epoch: int, now_ms: int
) -> tuple[takeover.Facts, takeover.Start | takeover.Stop]:
    """The facts and the decision. An operator's acceptance is used up by the start it allows.

    Raises Retryable while the facts cannot be had.
    """
    known = await outside.group.facts(stream, epoch)
    marker = await outside.markers.started_topic_id(stream)
    accepted = await outside.markers.accepted(stream)
    facts = facts_of(known, marker, accepted)
    decision = takeover.take_over(facts, replica=replica, epoch=epoch, now_ms=now_ms)
    if accepted and isinstance(decision, takeover.Start):
        await outside.markers.consume_acceptance(stream)
    return facts, decision


def stop_of(error: BlockhouseError) -> takeover.Stop:
    """An error that waiting alone does not mend, as a reason to stop."""
    return takeover.Stop(getattr(error, "reason", "") or getattr(error, "on", "Blocked"), str(error))


def facts_of(known: StreamFacts, marker: str | None, accepted: str) -> takeover.Facts:
    """Decode what is committed. An empty string is what commits without metadata carry."""
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
        accepted=accepted,
    )
