"""The two formats of eBay's open-source block aggregator: both are read, version 1 is also written.

They carry no checksum, so a reader can only be strict: it must never skip or repair anything. See `docs/metadata.md`.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from blockhouse.metadata.errors import MetadataInvalid, MetadataUnreadable

_INTEGER = re.compile(r"0|-?[1-9][0-9]*")
_PARTS = ",,"


@dataclass(frozen=True, slots=True)
class EbayTable:
    """A block to replay, `[begin, end]`; with `begin = end + 1` none is, and everything below `begin` is stored.

    `count` is the number of the table's messages since the reference (None in version 0).
    """

    begin: int
    end: int
    count: int | None = None

    @property
    def in_flight(self) -> bool:
        return self.begin <= self.end


@dataclass(frozen=True, slots=True)
class EbayMetadata:
    """A metadata of version 0 or 1. Version 0 knows neither replica nor reference; a reference of -1 means none."""

    version: int
    replica: str | None
    reference: int | None
    tables: dict[str, EbayTable] = field(default_factory=dict)

    @property
    def committed_offset(self) -> int | None:
        """The Kafka offset it is committed with; None without tables (then any offset is right)."""
        return min((table.begin for table in self.tables.values()), default=None)


def is_v1(text: str) -> bool:
    """True for version 1 and for any later one of that family."""
    return _PARTS in text


def encode(metadata: EbayMetadata) -> str:
    """The text of version 1. Raises MetadataInvalid naming what is missing or cannot be expressed."""
    if metadata.replica is None or metadata.reference is None:
        raise MetadataInvalid("metadata of version 1 needs a replica and a reference (-1 for none)")
    _valid_name(metadata.replica, "replica")
    parts = [metadata.replica]
    for name, table in metadata.tables.items():
        _valid_name(name, "table")
        if table.count is None:
            raise MetadataInvalid(f"metadata of version 1 needs the message count of table {name}")
        problem = _table_problem(table)
        if problem is not None:
            raise MetadataInvalid(f"table {name}: {problem}")
        parts += [name, str(table.begin), str(table.end), str(table.count)]
    return f"1{_PARTS}{','.join(parts)}{_PARTS}{metadata.reference}"


def decode(text: str, committed_offset: int | None = None) -> EbayMetadata:
    """The metadata that `text` holds, version 0 or 1. With `committed_offset` also checks that it belongs to that
    offset.

    Raises MetadataUnreadable.
    """
    metadata = _decode_v1(text) if is_v1(text) else _decode_v0(text)
    belongs = metadata.committed_offset
    if committed_offset is not None and belongs is not None and committed_offset != belongs:
        raise MetadataUnreadable(f"it belongs to offset {belongs}, but was committed with {committed_offset}", text)
    return metadata


def _decode_v1(text: str) -> EbayMetadata:
    parts = text.split(_PARTS)
    if parts[0] != "1" or len(parts) != 3:
        raise MetadataUnreadable("it is not version 1: 1,,replica[,table,begin,end,count...],,reference", text)
    replica, *fields = parts[1].split(",")
    if not replica:
        raise MetadataUnreadable("the replica is empty", text)
    reference = _integer(parts[2], "reference", text)
    return EbayMetadata(1, replica, reference, _tables(fields, 4, text))


def _decode_v0(text: str) -> EbayMetadata:
    if not text:
        raise MetadataUnreadable("it is empty", text)
    return EbayMetadata(0, None, None, _tables(text.split(","), 3, text))


def _tables(fields: list[str], width: int, text: str) -> dict[str, EbayTable]:
    """Tables of `width` fields each: name, begin, end and, in version 1, count."""
    if len(fields) % width:
        raise MetadataUnreadable(f"truncated or foreign: {len(fields)} fields are not a multiple of {width}", text)
    tables: dict[str, EbayTable] = {}
    for at in range(0, len(fields), width):
        name, *numbers = fields[at : at + width]
        if not name or name in tables or not name.isprintable() or name != name.strip():
            raise MetadataUnreadable(f"table name {name!r} at field {at + 1} is empty, odd or given twice", text)
        table = EbayTable(*(_integer(number, f"table {name}", text) for number in numbers))
        problem = _table_problem(table)
        if problem is not None:
            raise MetadataUnreadable(f"table {name}: {problem}", text)
        tables[name] = table
    return tables


def _table_problem(table: EbayTable) -> str | None:
    if table.begin < 0 or table.begin > table.end + 1:
        return f"begin {table.begin} and end {table.end} are no range (begin = end + 1 means that nothing is in flight)"
    if table.count is not None and table.count < 0:
        return f"message count {table.count} is negative"
    return None


def _integer(text: str, what: str, whole: str) -> int:
    if not _INTEGER.fullmatch(text):
        raise MetadataUnreadable(f"{what}: {text!r} is not an integer", whole)
    return int(text)


def _valid_name(name: str, what: str) -> None:
    if not name or "," in name or not name.isprintable() or name != name.strip():
        raise MetadataInvalid(f"{what} {name!r} cannot be written: it is empty or has a comma or odd characters")
