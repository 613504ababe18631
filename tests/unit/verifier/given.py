"""Streams and their commits as raw records, for tests."""

from __future__ import annotations

import struct
from dataclasses import replace

from blockhouse.metadata import codec
from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window
from blockhouse_aggregator.verifier.streams import Record

FIRST = Metadata("r1", 1, 1_000, "T1", 0, 10, Window(0, 10), (TableEntry(1, InFlight(0, 9, 10, 1, 7, 1_000)),))


def following(last: Metadata, messages: int = 10) -> Metadata:
    """The next round: what was in flight is stored, a new block of table 1 is sealed."""
    begin, end = last.position, last.position + messages - 1
    window = replace(last.window, sealed=last.window.sealed + messages)
    entry = TableEntry(1, InFlight(begin, end, messages, 1, 7, 1_000))
    return replace(last, seq=last.seq + 1, position=end + 1, window=window, tables=(entry,))


def key(group: str = "g", topic: str = "t", partition: int = 0) -> bytes:
    def text(value: str) -> bytes:
        return struct.pack(">h", len(value)) + value.encode()

    return struct.pack(">h", 1) + text(group) + text(topic) + struct.pack(">i", partition)


def value(offset: int, text: str, at_ms: int = 5_000) -> bytes:
    raw = text.encode() + b"\0"
    return struct.pack(">hqih", 3, offset, -1, len(raw)) + raw + struct.pack(">q", at_ms)


def record(at: int, metadata: Metadata | None, *, partition: int = 0, of: bytes | None = None) -> Record:
    """The record at offset `at` of the log partition; a tombstone without metadata."""
    content = value(metadata.committed_offset, codec.encode(metadata)) if metadata else None
    return partition, at, of or key(), content
