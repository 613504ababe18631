"""A table of several hundred fixed-width columns of which messages name one: the time and the memory to catch up.

    .venv/bin/python bench/wide_tables.py [--columns 300] [--rows 500000] [--worker 1g]

One aggregator with default limits, no operator; everything lies in the log before it starts. `--worker` bounds the
memory of each Spark worker (`spark.executor.pyspark.memory`). Figures, never pass or fail on time; code 1 when rows are
missing.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import Producer

from bench.processes import pss_by_program
from blockhouse.config.endpoints import ClickHouse, ZooKeeper
from blockhouse.producer.rows import RowEncoder
from blockhouse.schema.history import first_revision
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.tables import describe
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from e2e.pipeline import Pipeline, PipelineSpec
from e2e.stack import Stack, StackSpec
from e2e.stack.periodic import Periodic
from e2e.stack.tables import create_replicated_table

TABLE, ROWS_PER_MESSAGE = "default.wide", 500
CATCH_UP = 480.0


class Workers(Periodic):
    """The most that the Spark workers of a process had in memory, in MiB."""

    def __init__(self, leader: int) -> None:
        self.most = 0.0
        self._leader = leader
        super().__init__(self._look, 0.2, name="workers")

    def _look(self) -> None:
        self.most = max(self.most, pss_by_program(self._leader)["workers"] / 2**20)


def main(
    columns: Annotated[int, typer.Option(min=1)] = 300,
    rows: Annotated[int, typer.Option(min=ROWS_PER_MESSAGE)] = 500_000,
    worker: Annotated[str, typer.Option(help="Limit of a worker's memory, as Spark writes it; empty: none.")] = "",
) -> None:
    with tempfile.TemporaryDirectory() as name, Stack(Path(name), StackSpec(kafka_clusters=1)) as stack:
        created = ", ".join(["id UInt64", *(f"c{number} UInt64" for number in range(columns))])
        create_replicated_table(stack, TABLE.partition(".")[2], created, order_by="id")
        conf = {"spark.executor.pyspark.memory": worker} if worker else {}
        spec = PipelineSpec(name="wide", topic="wide", aggregators=1, overrides={"spark": {"conf": conf}})
        with Pipeline(stack, Path(name), spec) as pipeline:
            pipeline.create_topic()
            payload = produce(pipeline, rows // ROWS_PER_MESSAGE)
            (aggregator,) = pipeline.aggregators.values()
            began = time.monotonic()
            pipeline.start()
            assert aggregator.pid is not None
            with Workers(aggregator.pid) as workers:
                pipeline.wait_for("everything stored", pipeline.quiet, CATCH_UP)
            seconds = time.monotonic() - began
            blocks = aggregator.metric("blockhouse_blocks_total") or 0
        stored = stack.clickhouse[1, 1].execute(f"SELECT count(), uniqExact(_kafka_offset) FROM {TABLE}")
    sent = rows // ROWS_PER_MESSAGE * ROWS_PER_MESSAGE
    print(f"{columns} columns, {sent:,} rows of {payload} bytes a message: {blocks:.0f} blocks in {seconds:.1f} s")
    print(f"workers at most {workers.most:.0f} MiB (PSS of all), limit of each: {worker or 'none'}; stored {stored[0]}")
    if stored[0][0] != sent:
        raise typer.Exit(1)


def produce(pipeline: Pipeline, messages: int) -> int:
    """Put messages of one column into the log, compressed; returns the bytes of one."""
    server, (cluster,) = pipeline.stack.clickhouse[1, 1], pipeline.kafka.values()
    with Replica(ClickHouse(host=server.host, port=server.port)) as replica:
        found = describe(replica, *TABLE.split("."))
    assert found is not None
    with Session(ZooKeeper(servers=pipeline.stack.zookeeper.connect, root=pipeline.root)) as session:
        store = SchemaStore(session)
        store.ensure_id(TABLE)
        history = store.append(TABLE, 0, first_revision(found.columns))
    encoder = RowEncoder(history, history.revisions[0])
    value = encoder.encode([{"id": number} for number in range(ROWS_PER_MESSAGE)])
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "compression.type": "zstd", "log_level": 0})
    headers: list[tuple[str, str | bytes | None]] = [("table", TABLE), ("format", "rows"), ("schema", "1")]
    for number in range(messages):
        producer.produce(pipeline.spec.topic, value, headers=headers, partition=number % pipeline.spec.partitions)
        producer.poll(0)
    assert producer.flush(60) == 0
    return len(value)


if __name__ == "__main__":
    typer.run(main)
