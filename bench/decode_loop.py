"""The other side of `bench/decode.py`: the same messages to the same bytes with the official protobuf runtime.

What a careful engineer writes without a vectorised decoder. It must stay the fastest plain way: of the forms tried (an
append per value, comprehensions per column over all rows, `map` per column over a message's rows) this is the fastest.
It must give, byte for byte, the block that Blockhouse makes (tests/unit/bench/test_bench_decode.py). It is spared what
Blockhouse does beside that: unknown fields, ranges per row, the CRC of the intent.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any

from clickhouse_driver.bufferedwriter import BufferedSocketWriter
from clickhouse_driver.columns.service import write_column
from clickhouse_driver.context import Context
from clickhouse_driver.varint import write_varint
from clickhouse_driver.writer import write_binary_str

from blockhouse.schema.model import TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse.streams import StreamId

_MIB = 1 << 20
_CONTEXT = Context()
_CONTEXT.client_settings = {"use_numpy": False, "strings_as_bytes": True, "strings_encoding": "utf-8"}
_CONTEXT.settings = {}
# The driver would inspect every value of a DateTime and an Enum, which are numbers here already.
_STORED_AS = {"DateTime": "UInt32", "Enum8": "Int8"}

Rows = Sequence[Any]


class Nowhere:
    """A socket whose bytes are not read."""

    def sendall(self, data: bytes) -> None:
        pass


def parser(table: TableHistory) -> Callable[[bytes], Any]:
    """What is kept from block to block."""
    assert table.current is not None
    return row_batch_class(table, table.current).FromString


def loop(
    parse: Callable[[bytes], Any], table: TableHistory, payloads: Sequence[bytes], stream: StreamId, socket: Any
) -> int:
    """The block of messages at offsets 0, 1, ..., written to `socket`. Returns its rows."""
    assert table.current is not None
    columns: dict[str, list[Any]] = {column.name: [] for column in table.current.insertable}
    readers = [(reader(c.name, c.type), columns[c.name].extend) for c in table.current.row]
    offsets = columns["_kafka_offset"]
    for offset, payload in enumerate(payloads):
        rows = list(parse(payload).rows)
        for read, extend in readers:
            extend(read(rows))
        offsets += [offset] * len(rows)
    columns["_kafka_cluster"] = [stream.cluster.encode()] * len(offsets)
    columns["_kafka_partition"] = [stream.partition] * len(offsets)
    out = BufferedSocketWriter(socket, _MIB)
    write_varint(len(columns), out)
    write_varint(len(offsets), out)
    for column in table.current.insertable:
        write_binary_str(column.name, out)
        write_binary_str(column.type, out)
        kind = _STORED_AS.get(column.type.partition("(")[0], column.type)
        write_column(_CONTEXT, column.name, kind, columns[column.name], out)
    out.flush()
    return len(offsets)


def reader(name: str, type_: str) -> Callable[[Rows], Iterable[Any]]:
    """A column's values of one message's rows."""
    get = attrgetter(name)
    if type_.startswith("Array(Array("):
        return lambda rows: [[list(item.value) for item in get(row)] for row in rows]
    if type_.startswith("Array("):
        return lambda rows: map(list, map(get, rows))
    if type_.startswith("Nullable("):
        return lambda rows: [get(row) if row.HasField(name) else None for row in rows]
    return lambda rows: map(get, rows)
