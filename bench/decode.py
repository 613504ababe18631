"""Rows per second and core from Kafka values to Native bytes, beside the official protobuf runtime with a Python loop.

    python bench/decode.py [--rows 50000] [--repeat 7] [--shape NAME] [--format NAME]

The same rows in every format; the loop (decode_loop.py) always reads them as `rows`, and both give the same bytes. CPU
time, medians; the two run in turn, so that a busy machine slows both, each in a process of its own, so that neither
meets the other's memory. Figures, never pass or fail.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import statistics
import time
from bisect import bisect_left
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import accumulate
from multiprocessing.connection import Connection
from typing import Any

from bench.decode_loop import Nowhere, loop, parser
from blockhouse.config.pipeline import MAX_ROWS
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import ServerColumn, TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import EncodedBlock
from blockhouse_aggregator.blocks.collecting import DECODE_STEP, Catalog
from blockhouse_aggregator.wire.formats import Format
from blockhouse_aggregator.wire.nucolumnar_messages import request_class

STREAM = StreamId("a", "events-0", 0)
# Not LowCardinality: the two sides would write different dictionaries, and the driver slowly.
PROVENANCE = "_kafka_cluster String, _kafka_partition UInt32, _kafka_offset UInt64"
ROWS_PER_MESSAGE = 10


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    columns: str

    def table(self) -> TableHistory:
        named = (part.split(" ", 1) for part in f"{self.columns}, {PROVENANCE}".split(", "))
        revision = first_revision([ServerColumn(name=name, type=type_) for name, type_ in named])
        return TableHistory(id=1, name=f"bench.{self.name}", revisions=(revision,))


SHAPES = (
    Shape("narrow", "id UInt64, ts DateTime, kind UInt8, value Float64"),
    Shape(
        "mixed12",
        "event_id UInt64, user_id Int64, price Float64, ts DateTime, session String, page String, country String, "
        "ref_code Nullable(Int32), device String, tags Array(UInt32), kind Enum8('v'=0,'c'=1,'b'=2,'r'=3), flag UInt8",
    ),
    Shape("wide60", ", ".join(f"c{n} {('UInt32', 'Int64', 'Float64', 'UInt8', 'String')[n % 5]}" for n in range(60))),
    Shape("strings", ", ".join(f"s{n} String" for n in range(8))),
    Shape("arrays", "id UInt64, a Array(UInt32), b Array(Float64), c Array(String), d Array(Array(Int32))"),
)


def value(rnd: random.Random, type_: str) -> object:
    """A plausible value of the column's type, as the message holds it."""
    if type_.startswith("Enum8"):
        return rnd.randrange(4)
    match type_:
        case "UInt64" | "Int64":
            return rnd.randrange(1 << 40)
        case "Float64":
            return rnd.random() * 1000
        case "DateTime":
            return 1_793_500_000 + rnd.randrange(1000)
        case "String":
            return rnd.choice((b"", b"DE", b"desktop-firefox", b"/shop/cat/item-%d" % rnd.randrange(10**6)))
        case "UInt8":
            return rnd.randrange(2)
        case "Nullable(Int32)":
            return rnd.choice((None, rnd.randrange(1 << 31)))
        case _:
            return rnd.randrange(100_000)


def messages(table: TableHistory, rows: int) -> list[bytes]:
    """Payloads of ROWS_PER_MESSAGE rows each, the same on every run."""
    rnd = random.Random(1)
    assert table.current is not None
    columns, batch_class = table.current.row, row_batch_class(table, table.current)
    payloads = []
    for _ in range(rows // ROWS_PER_MESSAGE):
        batch = batch_class()
        for _ in range(ROWS_PER_MESSAGE):
            row = batch.rows.add()  # type: ignore[attr-defined]
            for column in columns:
                fill(row, rnd, column.name, column.type)
        payloads.append(batch.SerializeToString())
    return payloads


def fill(row: object, rnd: random.Random, name: str, type_: str) -> None:
    if type_.startswith("Array(Array("):
        for _ in range(rnd.randrange(4)):
            getattr(row, name).add().value.extend(value(rnd, type_[12:-2]) for _ in range(rnd.randrange(4)))
    elif type_.startswith("Array("):
        getattr(row, name).extend(value(rnd, type_[6:-1]) for _ in range(rnd.randrange(6)))
    elif (chosen := value(rnd, type_)) is not None:
        setattr(row, name, chosen)


def translated(form: Format, table: TableHistory, payloads: Sequence[bytes]) -> list[bytes]:
    """The same rows as messages of another format."""
    if form is Format.ROWS:
        return list(payloads)
    assert table.current is not None
    parse = row_batch_class(table, table.current).FromString
    types = {column.name: column.type for column in table.current.row}
    write = as_json if form is Format.JSON else as_nucolumnar
    return [write([plain_row(row, types) for row in parse(payload).rows], types) for payload in payloads]  # type: ignore[attr-defined]


def plain_row(row: Any, types: Mapping[str, str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, type_ in types.items():
        if type_.startswith("Array("):
            found[name] = [list(item.value) if hasattr(item, "value") else item for item in getattr(row, name)]
        else:
            found[name] = getattr(row, name) if row.HasField(name) else None
    return found


def as_json(rows: Sequence[Mapping[str, Any]], _types: Mapping[str, str]) -> bytes:
    return "\n".join(json.dumps(row, default=bytes.decode, separators=(",", ":")) for row in rows).encode()


def as_nucolumnar(rows: Sequence[Mapping[str, Any]], types: Mapping[str, str]) -> bytes:
    request: Any = request_class(2)()
    bindings = request.nucolumnarEncoding
    bindings.sql = f"INSERT INTO t ({', '.join(types)}) VALUES ({', '.join('?' * len(types))})".encode()
    for row in rows:
        values = bindings.batch_bindings.add().values
        for name, value in row.items():
            set_value(values.add(), value, types[name])
    return bytes(request.SerializeToString())


def set_value(value: Any, given: Any, type_: str) -> None:
    match given:
        case None:
            value.null_value = 0
        case list():
            value.list_value.SetInParent()
            for item in given:
                set_value(value.list_value.value.add(), item, "")
        case bytes():
            value.string_value = given
        case float():
            value.double_value = given
        case _ if type_ == "DateTime":
            value.timestamp.milliseconds = given * 1000
        case _:
            value.long_value = given


def worker(table: TableHistory) -> Catalog:
    """What a worker keeps from block to block."""
    catalog = Catalog()
    catalog.learn((table,))
    return catalog


def vectorised(form: Format, catalog: Catalog, table: str, payloads: Sequence[bytes]) -> EncodedBlock:
    """What the aggregator does: take and decode a few MiB at a time, seal one block."""
    builder = catalog.builder(table, None, STREAM)
    assert builder is not None
    ends = list(accumulate(map(len, payloads)))
    taken = 0
    while taken < len(payloads):
        before = ends[taken - 1] if taken else 0
        part = slice(taken, bisect_left(ends, before + DECODE_STEP) + 1)
        portion = payloads[part]
        builder.extend(range(taken, taken + len(portion)), portion, [0] * len(portion), form)
        builder.decode()
        taken += len(portion)
    sealed = builder.seal(MAX_ROWS)
    assert sealed.block is not None
    assert not sealed.dead
    return sealed.block


@contextmanager
def elsewhere(work: Callable[[], object]) -> Iterator[Callable[[], float]]:
    """`work` in a process of its own, which does nothing else: each call runs it once and returns its CPU seconds."""
    fork = multiprocessing.get_context("fork")
    here, there = fork.Pipe()
    process = fork.Process(target=serve, args=(work, there), daemon=True)
    process.start()

    def once() -> float:
        here.send(True)
        return float(here.recv())

    yield once
    here.send(False)
    process.join()


def serve(work: Callable[[], object], pipe: Connection) -> None:
    while pipe.recv():
        began = time.process_time()
        work()
        pipe.send(time.process_time() - began)


def medians(one: Callable[[], object], other: Callable[[], object], repeat: int) -> tuple[float, float]:
    """Median CPU seconds of both, run in turn after a first time that does not count."""
    with elsewhere(one) as first, elsewhere(other) as second:
        times = [(first(), second()) for _ in range(repeat + 1)][1:]
    return statistics.median(a for a, _ in times), statistics.median(b for _, b in times)


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    options.add_argument("--rows", type=int, default=50_000)
    options.add_argument("--repeat", type=int, default=7)
    options.add_argument("--shape", choices=[shape.name for shape in SHAPES])
    options.add_argument("--format", choices=list(Format))
    chosen = options.parse_args()
    print("shape      format      B/row     decode+encode    MB/s      upb + loop  ratio")
    for shape in SHAPES:
        if chosen.shape not in (None, shape.name):
            continue
        table = shape.table()
        rows = messages(table, chosen.rows)
        for form in Format:
            if chosen.format not in (None, form):
                continue
            payloads = translated(form, table, rows)
            size = sum(map(len, payloads))
            ours, plain = medians(
                partial(vectorised, form, worker(table), table.name, payloads),
                partial(loop, parser(table), table, rows, STREAM, Nowhere()),
                chosen.repeat,
            )
            print(
                f"{shape.name:10} {form:10} {size / chosen.rows:6.0f} {chosen.rows / ours:10,.0f} rows/s "
                f"{size / ours / 1e6:7.0f} {chosen.rows / plain:8,.0f} rows/s {plain / ours:5.1f}x"
            )


if __name__ == "__main__":
    main()
