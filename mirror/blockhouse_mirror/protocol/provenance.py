"""Where a mirrored record came from: a header for each hop, by which takeovers, audits and cycles are decided. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

HEADER = "blockhouse-mirror"
"""The key. A record that was mirrored twice has two, the newest last."""
AFTER = b" %d"
"""What the header has behind the offset, completed by `% after`, where `after` is another one. Most records follow the
one before them without a gap, and each pays for what its header holds."""
_VERSION = "1"

Headers = Iterable[tuple[str, bytes | None]]


@dataclass(frozen=True, slots=True)
class Origin:
    """The source of one record. `after` is the position behind the record that was mirrored before it, so that records
    on the target form a chain in which a missing one shows; compaction and the like make offsets no such chain."""

    cluster: str
    topic_id: str
    partition: int
    offset: int
    after: int


def origin_format(cluster: str, topic_id: str, partition: int) -> bytes:
    """The header of records of one source partition, to be completed by `% offset`, and by AFTER where needed."""
    stem = f"{_VERSION} {cluster} {topic_id} {partition} ".encode()
    return stem.replace(b"%", b"%%") + b"%d"


def decode(value: bytes | None) -> Origin | None:
    """None for what is not ours, or of a later version."""
    parts = (value or b"").decode("ascii", errors="replace").split(" ")
    if len(parts) not in {5, 6} or parts[0] != _VERSION:
        return None
    try:
        return Origin(parts[1], parts[2], int(parts[3]), int(parts[4]), int(parts[-1]))
    except ValueError:
        return None


def newest(headers: Headers) -> Origin | None:
    """The last hop of a record; None when it was never mirrored."""
    found = [value for key, value in headers if key == HEADER]
    return decode(found[-1]) if found else None


def came_from(headers: Headers, cluster: str) -> bool:
    """Whether the record was in that cluster before: mirrored there it would go round and round."""
    for key, value in headers:  # noqa: SIM110 - asked of every record: a generator takes twice as long
        if key == HEADER and (origin := decode(value)) and origin.cluster == cluster:
            return True
    return False


def without(headers: Headers) -> list[tuple[str, bytes | None]]:
    """The headers that producers gave the record."""
    return [(key, value) for key, value in headers if key != HEADER]
