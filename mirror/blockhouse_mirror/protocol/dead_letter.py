"""What is kept of a record that the target refuses: itself, where it came from and why, in a topic of their own. Pure.

Nothing is cut silently: what the topic has no room for is named, with its size, and the source still has it.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

NOW = 0
"""The timestamp of a letter, which the client replaces by the present moment: a refused one must not refuse it too."""
ANY = -1
"""The partition of a letter: by its key."""
REASON, TOPIC, TIMESTAMP, OMITTED = (
    "blockhouse.reason",
    "blockhouse.topic",
    "blockhouse.timestamp",
    "blockhouse.omitted",
)


@dataclass(frozen=True, slots=True)
class Outgoing:
    """A record as it is sent to the target. `timestamp_ms` is Kafka's."""

    topic: str
    partition: int
    key: bytes | None
    value: bytes | None
    timestamp_ms: int
    headers: tuple[tuple[str, bytes | None], ...]


def letters(record: Outgoing, topic: str, reason: str) -> tuple[Outgoing, Outgoing]:
    """The dead letter of a record that was refused for that reason, and the one without its value for a topic that has
    no room for it. All headers of the record are there, its origin among them."""
    ours = {REASON: reason, TOPIC: f"{record.topic}/{record.partition}", TIMESTAMP: str(record.timestamp_ms)}
    added = tuple((name, text.encode()) for name, text in ours.items())
    whole = replace(record, topic=topic, partition=ANY, timestamp_ms=NOW, headers=record.headers + added)
    omitted = (OMITTED, f"value {len(record.value or b'')}".encode())
    return whole, replace(whole, value=None, headers=(*whole.headers, omitted))
