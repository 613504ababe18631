"""How large the metadata beside a stream's offset may become. The codec writes it: its length is never estimated."""

from __future__ import annotations

from blockhouse.metadata.codec import encoded_size
from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window

OFFSET, COMMITS, WINDOW = 10**12, 10**9, 10**6
"""The position of an old stream, its commits, and the messages since its counts began: as in `docs/metadata.md`."""
NOW_MS, AGE_MS = 1_800_000_000_000, 60_000
ID_STEP, REVISION = 36**3, 12
"""Between ids of tables, which have three random digits; a schema that was changed several times."""
_REPLICA, _TOPIC_ID = "events-0-dc-a-0", "x" * 22


def commit_units(tables: int, messages: int) -> int:
    """UTF-16 units of a commit with a block of each table in flight, a minute old, of a round of so many messages.

    A round has at most as many blocks as messages. Both numbers are at least 1.
    """
    blocks = min(tables, messages)
    begins = [OFFSET - messages, *[OFFSET - messages + messages // 2] * (blocks - 1)]
    share = messages // blocks  # a round of n messages: the first block has the lowest offset, others begin half way
    metadata = Metadata(
        replica=_REPLICA,
        seq=COMMITS,
        intent_ms=NOW_MS,
        topic_id=_TOPIC_ID,
        leader_epoch=99,
        position=OFFSET,
        window=Window(OFFSET - WINDOW, sealed=WINDOW),
        tables=tuple(TableEntry((number + 1) * ID_STEP, _block(begin, share)) for number, begin in enumerate(begins)),
    )
    return encoded_size(metadata)


def _block(begin: int, messages: int) -> InFlight:
    return InFlight(begin, OFFSET - 1, messages, REVISION, crc=0, intent_ms=NOW_MS - AGE_MS)
