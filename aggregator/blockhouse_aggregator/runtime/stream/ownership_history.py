"""Which streams this aggregator has owned, from when to when and why no longer, and with what each began."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence

from blockhouse.contract.diagnosis import InitialBlock, InitialMetadata, InitialTable, Ownership, TakenOverBlock
from blockhouse.metadata import codec
from blockhouse.metadata.model import Metadata, TableEntry
from blockhouse_aggregator.protocol.state import StreamState

KEPT = 100
TABLES = 64
"""Tables of an initial metadata that are kept one by one. Its text, which has all, is at most what the brokers accept;
decoded, a text of 4 kB may be 500 tables, and the page asks for a hundred of them every five seconds."""


class OwnershipHistory:
    """The last `KEPT` times that this process owned a stream, the newest last. On the event loop's thread."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self._kept: deque[Ownership] = deque(maxlen=KEPT)

    def all(self) -> Sequence[Ownership]:
        """As the admin API answers them."""
        return tuple(self._kept)

    def began(
        self,
        stream: str,
        epoch: int,
        state: StreamState,
        table: Callable[[int], str],
        *,
        found: Metadata | None = None,
        accepted: str = "",
    ) -> None:
        """`stream` was taken over with `state`; `found` is the metadata that was committed, if there was one to read,
        `table` names a table by its number, `accepted` is what a person had to accept before. Caller: the stream's
        report."""
        blocks = [(table(t.table), t.block.intent) for t in state.in_flight if t.block is not None]
        self._kept.append(
            Ownership(
                stream=stream,
                epoch=epoch,
                began_ms=self._now_ms(),
                position=state.position,
                sequence=state.seq,
                replays=tuple(TakenOverBlock(table=name, begin=i.begin, end=i.end) for name, i in blocks),
                accepted=accepted,
                metadata=_initial(found, table) if found is not None else None,
                ended_ms=0,
                why="",
            )
        )

    def ended(self, stream: str, epoch: int, why: str) -> None:
        """The stream is not owned any more; nothing to do when it never began. Caller: the stream's report."""
        for index, entry in enumerate(self._kept):
            if (entry.stream, entry.epoch, entry.ended_ms) == (stream, epoch, 0):
                self._kept[index] = entry.model_copy(update={"ended_ms": self._now_ms(), "why": why})


def _initial(found: Metadata, name: Callable[[int], str]) -> InitialMetadata:
    window = found.window
    return InitialMetadata(
        text=_text(found),
        replica=found.replica,
        sequence=found.seq,
        intent_ms=found.intent_ms,
        topic_id=found.topic_id,
        leader_epoch=found.leader_epoch,
        committed_offset=found.committed_offset,
        position=found.position,
        reference=window.reference,
        sealed=window.sealed,
        dead=window.dead,
        holes=window.holes,
        pending=found.pending,
        tables=tuple(_table(entry, name(entry.table)) for entry in found.tables[:TABLES]),
        tables_left_out=max(0, len(found.tables) - TABLES),
    )


def _text(found: Metadata) -> str:
    """A takeover must not fail for what is shown of it: the first commit refuses what contradicts itself."""
    try:
        return codec.encode(found)
    except codec.MetadataInvalid:
        return ""


def _table(entry: TableEntry, name: str) -> InitialTable:
    block = entry.in_flight
    recorded = None
    if block is not None:
        recorded = InitialBlock(
            begin=block.begin,
            end=block.end,
            messages=block.messages,
            revision=block.revision,
            crc=block.crc,
            intent_ms=block.intent_ms,
        )
    return InitialTable(table=name, in_flight=recorded, cursor=entry.cursor, pending=entry.pending)
