"""Records of `__consumer_offsets`, by the versions of their schemas in Kafka's group coordinator. Pure.

A key begins with its version: 0 and 1 name a committed offset, 2 a group; from 3 on they belong to newer coordinators.
A value begins with its own version, 0 to 4. What is not known is distinguished from what is damaged, and neither is
guessed at."""

from __future__ import annotations

from struct import Struct, error
from typing import NamedTuple

_SHORT = Struct(">h")
_LENGTH = Struct(">h")
_PARTITION = Struct(">i")
_OFFSET = Struct(">hq")
_TIME = Struct(">q")
_NEWEST_VALUE = 4


class Damaged(ValueError):
    """A record that is not what its version requires."""


class UnknownVersion(ValueError):
    """A record of a version that this release does not know."""


class CommitKey(NamedTuple):
    group: str
    topic: str
    partition: int


class CommitValue(NamedTuple):
    """`metadata` as the client gave it, without the NUL that librdkafka appends; `at_ms` is the coordinator's time."""

    offset: int
    metadata: str
    at_ms: int


def parse_key(key: bytes) -> CommitKey | None:
    """The stream and group a record is about; None for a record about something else (groups, newer coordinators).

    Raises Damaged.
    """
    try:
        (version,) = _SHORT.unpack_from(key)
        if version not in (0, 1):
            return None
        group, at = _string(key, 2)
        topic, at = _string(key, at)
        (partition,) = _PARTITION.unpack_from(key, at)
    except (error, UnicodeDecodeError) as wrong:
        raise Damaged(f"key of {len(key)} bytes: {wrong}") from wrong
    if at + 4 != len(key):
        raise Damaged(f"key of {len(key)} bytes has {len(key) - at - 4} too many")
    return CommitKey(group, topic, partition)


def parse_value(value: bytes) -> CommitValue:
    """What was committed. Raises Damaged or UnknownVersion."""
    try:
        version, offset = _OFFSET.unpack_from(value)
        if version == _NEWEST_VALUE:
            length, at = _varint(value, 14)
            end = at + length - 1
        elif 0 <= version < _NEWEST_VALUE:
            at = (14 if version == 3 else 10) + 2
            end = at + _LENGTH.unpack_from(value, at - 2)[0]
        else:
            raise UnknownVersion(f"value of version {version}: newer than {_NEWEST_VALUE}")
        if end < at or end > len(value):
            raise Damaged(f"value of {len(value)} bytes: its metadata would end at {end}")
        metadata = value[at:end].decode()
        (at_ms,) = _TIME.unpack_from(value, end)
    except (error, UnicodeDecodeError, IndexError) as wrong:
        raise Damaged(f"value of {len(value)} bytes: {wrong}") from wrong
    return CommitValue(offset, metadata.removesuffix("\0"), at_ms)


def _string(data: bytes, at: int) -> tuple[str, int]:
    (length,) = _LENGTH.unpack_from(data, at)
    if length < 0 or at + 2 + length > len(data):
        raise Damaged(f"a text of {length} bytes at {at} of {len(data)}")
    return data[at + 2 : at + 2 + length].decode(), at + 2 + length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    number = shift = 0
    while True:
        byte = data[at]
        number |= (byte & 0x7F) << shift
        at += 1
        if byte < 0x80:
            return number, at
        shift += 7
