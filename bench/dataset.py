"""The rows every contestant loads: the same for the same number of rows, on every machine and run.

Twelve columns of mixed types, about 107 bytes a row as protobuf, ten rows a message. They are kept in a file, because
making them takes longer than loading them.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from blockhouse.config.pipeline import MAX_ROWS, Blocks
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import TOPIC_COLUMN, ServerColumn, TableHistory
from blockhouse.schema.proto import row_batch_class
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import BlockBuilder

COLUMNS = {
    "event_id": "UInt64",
    "user_id": "Int64",
    "price": "Float64",
    "ts": "DateTime",
    "session": "String",
    "page": "String",
    "country": "String",
    "ref_code": "Nullable(Int32)",
    "device": "String",
    "tags": "Array(UInt32)",
    "kind": "Enum8('VIEW' = 0, 'CLICK' = 1, 'BUY' = 2, 'RETURN' = 3)",
    "flag": "UInt8",
}
"""As `system.columns` spells the types: the schema history compares them letter by letter."""
PROVENANCE = {
    "_kafka_cluster": "String",
    "_kafka_partition": "UInt32",
    "_kafka_offset": "UInt64",
    "_kafka_row": "UInt32",
}
"""What every contestant writes beside them."""
TOPIC = {TOPIC_COLUMN: "String"}
"""What tables have and Blockhouse writes, unless a run leaves it out."""
ORDER_BY, PARTITION_BY = "country, event_id", "toYYYYMM(ts)"
ROWS_PER_MESSAGE = 10
CHUNK = 100_000
"""Rows are generated in chunks of this many, each from its own seed: a larger dataset begins with the smaller one."""

_VERSION = 2
"""Part of the files' names: raise it when other rows are generated."""
_LIKE_TOPIC, _LIKE_ID = "blockhouse-limit-1", "Qm9uam91ciBtb25kZSAhIQ"
"""As long as the contestants' own: rows hold both."""
_LENGTH = struct.Struct("<I")
_KINDS = ("VIEW", "CLICK", "BUY", "RETURN")
_COUNTRIES = ("US", "DE", "GB", "FR", "JP", "BR", "IN", "IT", "ES", "CA")
_DEVICES = ("iphone", "android-phone", "desktop-chrome", "desktop-firefox", "tablet", "tv")
_PAGES = tuple(f"/shop/cat{i}/item-{i * 7919 % 100003}" for i in range(3000))


def history(table: str, *, names_topic: bool = True) -> TableHistory:
    """The schema history of `database.table` with these columns, `_kafka_topic` unless `names_topic` is False."""
    named = {**COLUMNS, **PROVENANCE, **(TOPIC if names_topic else {})}
    columns = [ServerColumn(name=name, type=type_) for name, type_ in named.items()]
    return TableHistory(id=1, name=table, revisions=(first_revision(columns),))


@dataclass(frozen=True, slots=True)
class Dataset:
    """`rows` rows in files of `folder`, made when they are not there yet. `rows` must be a multiple of CHUNK."""

    folder: Path
    rows: int

    def __post_init__(self) -> None:
        if self.rows <= 0 or self.rows % CHUNK:
            raise ValueError(f"rows must be a multiple of {CHUNK}, not {self.rows}")

    @property
    def _messages_file(self) -> Path:
        return self.folder / f"rows-v{_VERSION}-{self.rows}.messages"

    @property
    def _json_file(self) -> Path:
        return self.folder / f"rows-v{_VERSION}-{self.rows}.json"

    def prepare(self) -> None:
        """Make the files unless they exist."""
        if self._json_file.exists():
            return
        self.folder.mkdir(parents=True, exist_ok=True)
        partial = self._json_file.with_suffix(".partial")
        with self._messages_file.open("wb") as messages, partial.open("wb") as lines, ProcessPoolExecutor(2) as pool:
            for some_messages, some_lines in pool.map(_chunk, range(self.rows // CHUNK)):
                messages.write(some_messages)
                lines.write(some_lines)
        partial.rename(self._json_file)

    def messages(self) -> Iterator[bytes]:
        """`RowBatch` values of ROWS_PER_MESSAGE rows, in order."""
        data = memoryview(self._messages_file.read_bytes())
        at = 0
        while at < len(data):
            (length,) = _LENGTH.unpack_from(data, at)
            at += _LENGTH.size + length
            yield bytes(data[at - length : at])

    def json_messages(self) -> Iterator[bytes]:
        """The same rows as JSONEachRow, as many a message."""
        lines: list[bytes] = []
        with self._json_file.open("rb") as file:
            for line in file:
                lines.append(line)
                if len(lines) == ROWS_PER_MESSAGE:
                    yield b"".join(lines).removesuffix(b"\n")
                    lines.clear()

    def native_blocks(
        self, blocks: Blocks, *, cluster: str, partitions: int, first_offset: int, names_topic: bool = True
    ) -> Iterator[bytes]:
        """The blocks Blockhouse makes of these messages, round-robin in `partitions`; blocks of partitions in turn."""
        table = history("default.any", names_topic=names_topic)
        revision = table.current
        assert revision is not None
        builders: dict[int, BlockBuilder] = {}
        for number, value in enumerate(self.messages()):
            partition, offset = number % partitions, first_offset + number // partitions
            builder = builders.get(partition)
            if builder is None:
                builder = builders[partition] = BlockBuilder(
                    table, revision, StreamId(cluster, _LIKE_TOPIC, partition), topic_id=_LIKE_ID
                )
            builder.append(offset, value, 0)
            full_rows = builder.messages * ROWS_PER_MESSAGE >= blocks.max_rows
            if full_rows or builder.payload_bytes >= blocks.max_bytes:
                yield _body(builders.pop(partition))
        for _, builder in sorted(builders.items()):
            yield _body(builder)


def _body(builder: BlockBuilder) -> bytes:
    block = builder.seal(MAX_ROWS).block
    assert block is not None
    return block.body


def _chunk(seed: int) -> tuple[bytes, bytes]:
    """Messages, each behind its length, and lines of JSON."""
    table = history("default.any")
    assert table.current is not None
    make: Any = row_batch_class(table, table.current)
    messages: list[bytes] = []
    lines: list[str] = []
    batch = make()
    for row in _rows(seed):
        batch.rows.add(**{k: v.encode() if isinstance(v, str) else v for k, v in row.items() if v is not None})
        lines.append(_json(row))
        if len(batch.rows) == ROWS_PER_MESSAGE:
            value = batch.SerializeToString()
            messages += (_LENGTH.pack(len(value)), value)
            batch = make()
    return b"".join(messages), "".join(lines).encode()


def _rows(seed: int) -> Iterator[dict[str, Any]]:
    rng = np.random.Generator(np.random.PCG64(seed))
    number = seed * CHUNK + np.arange(CHUNK)
    sessions = rng.bytes(10 * CHUNK).hex()
    tag_ends = np.cumsum(rng.integers(0, 5, CHUNK))
    tags = rng.integers(0, 100_000, int(tag_ends[-1])).tolist()
    refs = rng.integers(0, 1 << 31, CHUNK).astype(object)
    refs[rng.random(CHUNK) < 0.5] = None
    drawn = {
        "event_id": number * 3 + 1,
        "user_id": rng.integers(0, 1 << 40, CHUNK),
        "price": rng.random(CHUNK) * 1000,
        "ts": 1_793_500_000 + number // 50,
        "page": np.array(_PAGES, object)[rng.integers(0, len(_PAGES), CHUNK)],
        "country": np.array(_COUNTRIES, object)[rng.integers(0, len(_COUNTRIES), CHUNK)],
        "ref_code": refs,
        "device": np.array(_DEVICES, object)[rng.integers(0, len(_DEVICES), CHUNK)],
        "kind": rng.integers(0, len(_KINDS), CHUNK),
        "flag": rng.integers(0, 2, CHUNK),
    }
    begin = 0
    for index, values in enumerate(zip(*(column.tolist() for column in drawn.values()), strict=True)):
        row = dict(zip(drawn, values, strict=True))
        end = int(tag_ends[index])
        yield row | {"session": sessions[20 * index : 20 * index + 20], "tags": tags[begin:end]}
        begin = end


def _json(row: dict[str, Any]) -> str:
    return json.dumps(row | {"kind": _KINDS[row["kind"]]}, separators=(",", ":")) + "\n"
