"""The metadata format of our own, version 2, as `docs/metadata.md` specifies and freezes it.

It must never truncate, never return a part of a metadata, and never read two texts as the same metadata.
"""

from __future__ import annotations

import re
from zlib import crc32

from blockhouse.metadata.errors import MetadataInvalid, MetadataUnreadable
from blockhouse.metadata.invariants import violations
from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window

PREFIX = "2;"
_FIELDS = 11
_CRC_DIGITS = 7
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"
_NUMBER = r"(?:0|[1-9a-z][0-9a-z]*)"
_IS_NUMBER = re.compile(_NUMBER)
_IS_NAME = re.compile(r"[A-Za-z0-9_.-]*")
_ENTRY = re.compile(
    rf"(?P<gap>{_NUMBER})"
    rf"(?:\.(?P<begin>{_NUMBER})\.(?P<length>{_NUMBER})\.(?P<messages>{_NUMBER})"
    rf"\.(?P<revision>{_NUMBER})(?P<crc>[0-9a-z]{{{_CRC_DIGITS}}})(?:\.(?P<age>-?[1-9a-z][0-9a-z]*))?)?"
    rf"(?:~(?P<cursor>{_NUMBER})\.(?P<pending>{_NUMBER}))?"
)


def encode(metadata: Metadata) -> str:
    """The text of `metadata`. Raises MetadataInvalid when it contradicts itself (see `problem`)."""
    wrong = problem(metadata)
    if wrong is not None:
        raise MetadataInvalid(f"metadata {metadata.seq} of replica {metadata.replica} cannot be written: {wrong}")
    low, window = metadata.committed_offset, metadata.window
    counts = (metadata.position - window.reference, window.sealed, window.dead, window.holes)
    fields = (
        metadata.replica,
        metadata.topic_id,
        _base36(metadata.seq),
        _base36(metadata.intent_ms),
        "" if metadata.leader_epoch == -1 else _base36(metadata.leader_epoch),
        _base36(low),
        _base36(metadata.position - low),
        ".".join(map(_base36, counts)),
        ",".join(_entries(metadata, low)),
    )
    body = PREFIX + ";".join(fields) + ";"
    return body + _checksum(body) + ";"


def encoded_size(metadata: Metadata) -> int:
    """Length of the text in UTF-16 units (the format is ASCII)."""
    return len(encode(metadata))


def decode(text: str, committed_offset: int | None = None) -> Metadata:
    """The metadata that `text` holds. With `committed_offset` also checks that it was committed with that Kafka offset.

    Raises MetadataUnreadable.
    """
    try:
        metadata = _parse(text)
        wrong = problem(metadata)
        if wrong is None and committed_offset is not None and committed_offset != metadata.committed_offset:
            wrong = f"it belongs to offset {metadata.committed_offset}, but was committed with {committed_offset}"
    except _Malformed as error:
        wrong = str(error)
    if wrong is not None:
        raise MetadataUnreadable(wrong, text)
    return metadata


def problem(metadata: Metadata) -> str | None:
    """The first reason why `metadata` is not a valid one, or None. Reader and writer ask the same question."""
    if not (_IS_NAME.fullmatch(metadata.replica) and _IS_NAME.fullmatch(metadata.topic_id)):
        return f"replica {metadata.replica!r} or topic id {metadata.topic_id!r} has other than A-Z a-z 0-9 _ . -"
    return next(iter(violations(metadata)), None)


def _entries(metadata: Metadata, low: int) -> list[str]:
    texts = []
    previous = 0
    for entry in metadata.tables:
        text = _base36(entry.table - previous)
        previous = entry.table
        block = entry.in_flight
        if block is not None:
            numbers = (block.begin - low, block.end - block.begin, block.messages, block.revision)
            text += "." + ".".join(map(_base36, numbers)) + _base36(block.crc).rjust(_CRC_DIGITS, "0")
            if block.intent_ms != metadata.intent_ms:
                text += "." + _base36(metadata.intent_ms - block.intent_ms)
        if entry.cursor is not None:
            text += f"~{_base36(entry.cursor - low)}.{_base36(entry.pending)}"
        texts.append(text)
    return texts


class _Malformed(ValueError):
    """What is wrong with a text, and where in it."""


def _parse(text: str) -> Metadata:
    fields = _checked_fields(text)
    replica, topic_id, seq, intent, epoch, low_text, ahead, window, entries = fields
    low, intent_ms = _number(low_text, "min"), _number(intent, "intent")
    position = low + _number(ahead, "ahead")
    counts = window.split(".")
    if len(counts) != 4:
        raise _Malformed(f"window {window!r} is not span.sealed.dead.holes")
    span, sealed, dead, holes = (_number(count, "window") for count in counts)
    metadata = Metadata(
        replica=replica,
        seq=_number(seq, "seq"),
        intent_ms=intent_ms,
        topic_id=topic_id,
        leader_epoch=_number(epoch, "epoch") if epoch else -1,
        position=position,
        window=Window(position - span, sealed, dead, holes),
        tables=_parse_entries(entries, low, intent_ms),
    )
    if metadata.committed_offset != low:
        raise _Malformed(f"min is {low}, but the least offset it names is {metadata.committed_offset}")
    return metadata


def _checked_fields(text: str) -> list[str]:
    """The fields between version and checksum, once the checksum proves that the text is as it was written."""
    if not text.startswith(PREFIX):
        raise _Malformed(f"it does not start with {PREFIX!r}")
    fields = text.split(";")
    if not text.isascii() or fields[-1] != "" or len(fields) != _FIELDS + 1:
        raise _Malformed(f"truncated or altered: {_FIELDS} fields of ASCII, each ended by ';', were expected")
    body = text[: -len(fields[-2]) - 1]
    if fields[-2] != _checksum(body):
        raise _Malformed(f"truncated or altered: checksum is {fields[-2]!r}, the text has {_checksum(body)!r}")
    return fields[1:-2]


def _parse_entries(text: str, low: int, intent_ms: int) -> tuple[TableEntry, ...]:
    entries: list[TableEntry] = []
    table = 0
    for part in text.split(",") if text else ():
        match = _ENTRY.fullmatch(part)
        if match is None:
            raise _Malformed(f"entry {len(entries) + 1} ({part!r}) has not the form of an entry")
        table += int(match["gap"], 36)
        block = _parse_block(match, low, intent_ms) if match["begin"] else None
        cursor = low + int(match["cursor"], 36) if match["cursor"] else None
        entries.append(TableEntry(table, block, cursor, int(match["pending"] or "0", 36)))
    return tuple(entries)


def _parse_block(match: re.Match[str], low: int, intent_ms: int) -> InFlight:
    begin = low + int(match["begin"], 36)
    return InFlight(
        begin=begin,
        end=begin + int(match["length"], 36),
        messages=int(match["messages"], 36),
        revision=int(match["revision"], 36),
        crc=int(match["crc"], 36),
        intent_ms=intent_ms - int(match["age"] or "0", 36),
    )


def _number(text: str, field: str) -> int:
    if not _IS_NUMBER.fullmatch(text):
        raise _Malformed(f"field {field!r} is {text!r}, not a base-36 number")
    return int(text, 36)


def _checksum(body: str) -> str:
    return _base36(crc32(body.encode("ascii"))).rjust(_CRC_DIGITS, "0")


def _base36(number: int) -> str:
    """Lower-case base 36, without leading zeros; `-` before a negative one."""
    if number < 0:
        return "-" + _base36(-number)
    digits = ""
    while number >= 36:
        number, digit = divmod(number, 36)
        digits = _DIGITS[digit] + digits
    return _DIGITS[number] + digits
