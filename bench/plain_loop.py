"""The loop that people write first: consume, parse with the official protobuf runtime, insert columns, commit offsets.

At least once: an offset is committed when its rows are stored. One process per partition; the inserts of a table take
turns by a lock file, because ClickHouse 18.16 refuses a second quorum insert at a time (code 286). Fills the same
columns as Blockhouse does, provenance included, so that the same rows are stored.

    python -m bench.plain_loop BOOTSTRAP TOPIC PARTITION FIRST_OFFSET HOST PORT TABLE QUORUM LOCK

FIRST_OFFSET -1000 continues where the group has committed. SIGUSR1 makes it kill itself at its worst point: after its
next insert, before the commit. Prints `ready` when it has connected and `stored N` after every insert, on standard
output; runs until it is killed.
"""

from __future__ import annotations

import fcntl
import os
import signal
import sys
from pathlib import Path
from typing import Any

from clickhouse_driver import Client
from confluent_kafka import Consumer, Message, TopicPartition

from bench import dataset
from blockhouse.schema.proto import row_batch_class

MAX_BYTES, MAX_ROWS = 10 << 20, 100_000
BATCH, WAIT = 1000, 0.2
NAMES = ", ".join((*dataset.COLUMNS, *dataset.PROVENANCE))


class Columns:
    """Rows by column, as clickhouse-driver takes them with `columnar=True`."""

    def __init__(self) -> None:
        self.lists: list[list[Any]] = [[] for _ in range(len(dataset.COLUMNS) + len(dataset.PROVENANCE))]
        self.size = 0

    @property
    def rows(self) -> int:
        return len(self.lists[0])

    @property
    def full(self) -> bool:
        return self.size >= MAX_BYTES or self.rows >= MAX_ROWS

    def add(self, message: Message, batch: Any) -> None:
        (
            event_ids, user_ids, prices, times, sessions, pages, countries, refs, devices, tags, kinds, flags,
            clusters, partitions, offsets, numbers,
        ) = self.lists  # fmt: skip
        for row in batch.rows:
            event_ids.append(row.event_id)
            user_ids.append(row.user_id)
            prices.append(row.price)
            times.append(row.ts)
            sessions.append(row.session)
            pages.append(row.page)
            countries.append(row.country)
            refs.append(row.ref_code if row.HasField("ref_code") else None)
            devices.append(row.device)
            tags.append(list(row.tags))
            kinds.append(row.kind)
            flags.append(row.flag)
        count = len(batch.rows)
        clusters += ["a"] * count
        partitions += [message.partition()] * count
        offsets += [message.offset()] * count
        numbers += range(count)


def parser() -> Any:
    """Class of the messages."""
    table = dataset.history("default.any")
    assert table.current is not None
    return row_batch_class(table, table.current)


def main() -> None:
    bootstrap, topic, partition, first_offset, host, port, table, quorum, lock = sys.argv[1:]
    client = Client(host, port=int(port))
    client.execute("SELECT 1")
    settings = {"bootstrap.servers": bootstrap, "group.id": f"loop-{topic}", "enable.auto.commit": False}
    settings["auto.offset.reset"] = "earliest"
    doomed: list[int] = []
    signal.signal(signal.SIGUSR1, lambda number, _: doomed.append(number))
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, int(partition), int(first_offset))])
    first = consumer.poll(1.0)  # connects; there is nothing to be read yet, unless this is another life
    begin = None if first is None else first.offset()
    if begin is not None:
        consumer.seek(TopicPartition(topic, int(partition), begin))
    print("ready", flush=True)
    with Path(lock).open("w") as turn:
        load(consumer, client, table, int(quorum), turn.fileno(), doomed)


def load(consumer: Consumer, client: Client, table: str, quorum: int, turn: int, doomed: list[int]) -> None:
    """Load what comes, indefinitely; a block is inserted when it is full or nothing more is there."""
    parse = parser()
    settings = {"insert_quorum": quorum, "insert_quorum_timeout": 60_000}
    columns = Columns()
    while True:
        messages = consumer.consume(BATCH, WAIT)
        for message in messages:
            value = message.value()
            if message.error() or value is None:
                raise RuntimeError(str(message.error()))
            columns.add(message, parse.FromString(value))
            columns.size += len(value)
        if columns.full or (columns.rows and not messages):
            fcntl.flock(turn, fcntl.LOCK_EX)
            client.execute(f"INSERT INTO {table} ({NAMES}) VALUES", columns.lists, columnar=True, settings=settings)
            if doomed:
                os.kill(os.getpid(), signal.SIGKILL)
            fcntl.flock(turn, fcntl.LOCK_UN)
            consumer.commit(asynchronous=False)
            print(f"stored {columns.rows}", flush=True)
            columns = Columns()


if __name__ == "__main__":
    main()
