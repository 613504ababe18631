"""Records of the offsets topic, byte by byte, of every version; what is not known is counted, not guessed at."""

from __future__ import annotations

import struct

import pytest

from blockhouse_aggregator.verifier.offsets.records import (
    CommitKey,
    CommitValue,
    Damaged,
    UnknownVersion,
    parse_key,
    parse_value,
)


def text(value: bytes) -> bytes:
    return struct.pack(">h", len(value)) + value


def key(version: int = 1) -> bytes:
    return struct.pack(">h", version) + text(b"events-01") + text(b"t") + struct.pack(">i", 3)


def value(version: int, metadata: bytes = b"2;r1\0") -> bytes:
    """As Kafka's OffsetCommitValue of that version."""
    body = struct.pack(">hq", version, 1200)
    if version >= 3:
        body += struct.pack(">i", 7)
    body += bytes([len(metadata) + 1]) + metadata if version == 4 else text(metadata)
    body += struct.pack(">q", 1_790_000_000_000)
    if version == 1:
        body += struct.pack(">q", -1)
    if version == 4:
        body += b"\x01\x00\x10" + bytes(16)  # one tagged field: the topic's id
    return body


@pytest.mark.parametrize("version", [0, 1])
def test_keys_of_commits_name_group_and_stream(version: int) -> None:
    assert parse_key(key(version)) == CommitKey("events-01", "t", 3)


def test_keys_of_groups_and_of_newer_coordinators_are_of_something_else() -> None:
    assert parse_key(struct.pack(">h", 2) + text(b"events-01")) is None
    assert parse_key(struct.pack(">h", 8) + b"whatever") is None


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_values_of_every_version_are_read_without_the_clients_nul(version: int) -> None:
    assert parse_value(value(version)) == CommitValue(1200, "2;r1", 1_790_000_000_000)


def test_a_long_text_of_version_4_has_a_length_of_two_bytes() -> None:
    long = b"x" * 300
    raw = struct.pack(">hqi", 4, 5, -1) + bytes([0x80 | (301 & 0x7F), 301 >> 7]) + long + struct.pack(">q", 9) + b"\0"

    assert parse_value(raw) == CommitValue(5, "x" * 300, 9)


def test_an_unknown_version_is_not_guessed_at() -> None:
    with pytest.raises(UnknownVersion, match="version 5"):
        parse_value(value(4)[:0] + struct.pack(">h", 5) + value(4)[2:])


@pytest.mark.parametrize("version", [0, 1, 2, 3, 4])
def test_a_record_cut_anywhere_is_damaged(version: int) -> None:
    whole = value(version)
    needed = whole.index(struct.pack(">q", 1_790_000_000_000)) + 8
    for length in range(needed):
        with pytest.raises(Damaged):
            parse_value(whole[:length])
    for length in range(2, len(key())):
        with pytest.raises(Damaged):
            parse_key(key()[:length])
    with pytest.raises(Damaged, match="1 too many"):
        parse_key(key() + b"x")
