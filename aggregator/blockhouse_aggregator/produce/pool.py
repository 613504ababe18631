"""Messages of one table, made from rows that were encoded beforehand: building one costs microseconds.

Each row is one of a pool, with one 64-bit column (if the table has one) replaced by a number that no other row of this
seed has, so that rows can be distinguished. The bytes are what the official runtime would write: fields in order.
"""

from __future__ import annotations

import random
from enum import StrEnum
from typing import Any

from blockhouse.errors import Permanent
from blockhouse.producer.rows import RowEncoder
from blockhouse.schema.model import Column, TableHistory
from blockhouse.schema.parse import parse_type
from blockhouse.schema.types import Float, Integer, Unit, plain
from blockhouse_aggregator.produce.samples import sample

_SIZE = 400
_VARINT, _LENGTH = 0, 2


class Kind(StrEnum):
    """What is wrong with a message; only GOOD ones are to be stored."""

    GOOD = "good"
    NO_TABLE = "no-table"
    UNKNOWN_TABLE = "unknown-table"
    UNDECODABLE = "undecodable"
    WRONG_TYPE = "wrong-type"


class MessagePool:
    """Messages of one table at its current revision, the same ones for the same seed.

    Raises Permanent for a table without a revision or column.
    """

    def __init__(self, table: TableHistory, seed: int) -> None:
        revision = table.current
        if revision is None or not revision.row:
            raise Permanent(f"table {table.name} has no schema to produce for", reason="UnknownTable")
        self.table = table.name
        self.headers = {"table": table.name, "format": "rows", "schema": str(revision.number)}
        self._seed = seed
        self._count = 0
        self._columns = sorted(revision.row, key=lambda column: column.field)
        self._encoder = RowEncoder(table, revision)
        self._rng = random.Random(f"{seed}/{table.name}")
        self._unique = next((column for column in self._columns if _wide(column)), None)
        self._rows = [self._row() for _ in range(_SIZE)]

    def message(self, rows: int) -> bytes:
        """The next good message, of `rows` rows."""
        parts: list[bytes] = []
        for head, tail in self._rng.choices(self._rows, k=rows):
            parts += (head, self._number(), tail) if self._unique else (head,)
        return b"".join(parts)

    def bad_message(self, kind: Kind, rows: int) -> tuple[bytes, dict[str, str]]:
        """Value and headers of a message that is bad in the way of `kind`, and in no other."""
        match kind:
            case Kind.NO_TABLE:
                return self.message(rows), {k: v for k, v in self.headers.items() if k != "table"}
            case Kind.UNKNOWN_TABLE:
                return self.message(rows), {**self.headers, "table": f"{self.table}_unknown"}
            case Kind.UNDECODABLE:
                return self.message(rows)[:-1] + b"\x0a\x7f", self.headers
            case Kind.GOOD:
                raise ValueError("a good message was asked for: call message()")
            case Kind.WRONG_TYPE:
                return self.message(rows) + self._wrongly_typed(), self.headers

    def _number(self) -> bytes:
        """The next unique number, always six bytes of varint: 2^41 and the seed above a count of rows."""
        n = 1 << 41 | (self._seed & 0x3FF) << 31 | self._count
        self._count += 1
        return bytes(
            (
                n & 127 | 128,
                n >> 7 & 127 | 128,
                n >> 14 & 127 | 128,
                n >> 21 & 127 | 128,
                n >> 28 & 127 | 128,
                n >> 35,
            )
        )

    def _row(self) -> tuple[bytes, bytes]:
        """A row's bytes before and after the unique number."""
        values: dict[str, Any] = {c.name: sample(parse_type(c.type), self._rng) for c in self._columns}
        if self._unique is None:
            return self._encoder.encode([values]), b""
        number = self._unique.field
        before = self._fields({c.name: values[c.name] for c in self._columns if c.field < number})
        after = self._fields({c.name: values[c.name] for c in self._columns if c.field > number})
        head = before + varint(number << 3 | _VARINT)
        return b"\x0a" + varint(len(head) + 6 + len(after)) + head, after

    def _fields(self, values: dict[str, Any]) -> bytes:
        """A row's fields without the tag and length that a RowBatch puts before them."""
        batch = self._encoder.encode([values])
        length = 1
        while batch[length] & 128:
            length += 1
        return batch[length + 1 :]

    def _wrongly_typed(self) -> bytes:
        """A row whose first column has the wire type of another kind of value."""
        column = self._columns[0]
        type_ = plain(parse_type(column.type))
        if isinstance(type_, Integer | Float):
            row = varint(column.field << 3 | _LENGTH) + b"\x01x"
        else:
            row = varint(column.field << 3 | _VARINT) + b"\x01"
        return b"\x0a" + varint(len(row)) + row


def _wide(column: Column) -> bool:
    type_ = plain(parse_type(column.type))
    return isinstance(type_, Integer) and type_.storage in ("int64", "uint64") and type_.unit is Unit.NUMBER


def varint(number: int) -> bytes:
    """Protobuf's base-128 form of a number >= 0."""
    data = bytearray()
    while number > 127:
        data.append(number & 127 | 128)
        number >>= 7
    data.append(number)
    return bytes(data)
