"""How long `blockhouse audit --values` takes for a sample of a large table, and how much memory.

    .venv/bin/python bench/audit_values.py [--messages 1000000] [--sample 10000]

Ten rows a message, eight columns of common types, one cluster, one replica; the rows are stored by the aggregator's own
blocks, without an aggregator. Figures, never pass or fail on time; an audit that is not exact ends with code 1.
"""

from __future__ import annotations

import json
import resource
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path
from random import Random
from typing import Annotated

import numpy as np
import typer
import yaml
from confluent_kafka import Producer

from blockhouse.config.endpoints import ClickHouse, KafkaCluster, ZooKeeper
from blockhouse.config.pipeline import MAX_ROWS
from blockhouse.producer.rows import RowEncoder
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.audit.values.judging import read_chosen
from blockhouse_aggregator.blocks.build import BlockBuilder
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.model import InsertRequest
from blockhouse_aggregator.clickhouse.tables import describe
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.wire.formats import Format
from e2e.stack import Stack, StackSpec
from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.tables import create_replicated_table

BLOCKHOUSE = str(Path(sys.executable).with_name("blockhouse"))
ROOT = "/bench"
TOPIC, TABLE, PARTITIONS, ROWS = "events", "events", 4, 10
COLUMNS = (
    "id UInt64, at DateTime, name String, price Decimal(18, 4), share Float64, kind Enum8('a' = 1, 'b' = 2),"
    " tags Array(String), note Nullable(String)"
)
DISTINCT = 1_000
"""Messages that differ; they are sent in turn."""
BLOCK = 20_000
"""Messages of a block."""


def main(messages: Annotated[int, typer.Option(min=1)] = 1_000_000, sample: int = 10_000) -> None:
    with (
        tempfile.TemporaryDirectory() as name,
        Stack(Path(name) / "stack", StackSpec(kafka_clusters=1, replicas=1)) as stack,
    ):
        (kafka,), (server,) = stack.kafka.values(), stack.clickhouse.values()
        kafka.create_topic(TOPIC, partitions=PARTITIONS)
        create_replicated_table(stack, TABLE, COLUMNS, order_by="id")
        cluster = KafkaCluster(name=kafka.name, bootstrap_servers=kafka.bootstrap)
        with Replica(ClickHouse(host=server.host, port=server.port)) as replica:
            table = recorded(replica, stack.zookeeper.connect)
            began = time.monotonic()
            produce(table, cluster, messages)
            store(table, cluster, replica)
        print(f"{messages:,} messages of {ROWS} rows produced and stored in {time.monotonic() - began:.0f} s")
        config = configuration(Path(name), stack, cluster, server)
        for arguments in ([], ["--values", "--sample", str(sample)]):
            began, cpu = time.monotonic(), children_cpu()
            command = [BLOCKHOUSE, "audit", "--config", config, "--json", *arguments]
            done = subprocess.run(command, check=False, stdout=subprocess.PIPE)
            seconds, most = time.monotonic() - began, resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss >> 10
            report = json.loads(done.stdout)
            values = sum(t["values"] for t in report["values"]["tables"]) if report["values"] else 0
            what = " ".join(["audit", *arguments])
            used = f"{seconds:.1f} s, {children_cpu() - cpu:.1f} s of CPU, at most {most} MiB"
            print(f"{what}: exact {report['exact']}, {values:,} values compared, {used}", flush=True)
            if done.returncode:
                raise typer.Exit(done.returncode)


def children_cpu() -> float:
    """Seconds of CPU time of all processes that have ended: the audit's, without the servers'."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def recorded(replica: Replica, zookeeper: str) -> TableHistory:
    """The table's history, written to ZooKeeper as a rollout does."""
    found = describe(replica, "default", TABLE)
    assert found is not None
    with Session(ZooKeeper(servers=zookeeper, root=ROOT)) as session:
        store = SchemaStore(session)
        store.ensure_id(found.full_name)
        return store.append(found.full_name, 0, first_revision(found.columns))


def produce(table: TableHistory, cluster: KafkaCluster, messages: int) -> None:
    encoder, random = RowEncoder(table, table.revisions[0]), Random(1)
    values = [encoder.encode([row(random) for _ in range(ROWS)]) for _ in range(DISTINCT)]
    headers: list[tuple[str, str | bytes | None]] = [("table", table.name), ("format", "rows"), ("schema", "1")]
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "linger.ms": 50, "compression.type": "zstd"})
    for number in range(messages):
        while True:
            try:
                producer.produce(TOPIC, values[number % DISTINCT], headers=headers, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    assert producer.flush(120) == 0


def row(random: Random) -> dict[str, object]:
    return {
        "id": random.getrandbits(63),
        "at": random.randrange(1_600_000_000, 1_700_000_000),
        "name": f"name {random.randrange(1000)}",
        "price": f"{random.randrange(10**9) / 10_000:.4f}",
        "share": random.random(),
        "kind": random.choice([1, 2]),
        "tags": [f"tag{random.randrange(50)}" for _ in range(random.randrange(4))],
        **({"note": "a note"} if random.random() < 0.5 else {}),
    }


def store(table: TableHistory, cluster: KafkaCluster, replica: Replica) -> None:
    facts = ClusterFacts(cluster)
    for partition in range(PARTITIONS):
        stream = StreamId(cluster.name, TOPIC, partition)
        topic_id, offsets = facts.topic_id(TOPIC), np.arange(facts.bounds(stream).end)
        log = read_chosen(cluster, stream, offsets)
        while batch := list(islice(log, BLOCK)):
            builder = BlockBuilder(table, table.revisions[0], stream, topic_id=topic_id)
            for message in batch:
                offset, value = message.offset(), message.value()
                assert offset is not None
                assert isinstance(value, bytes)
                builder.append(offset, value, message.timestamp()[1], Format.ROWS)
            block = builder.seal(MAX_ROWS).block
            assert block is not None
            replica.insert_native(
                InsertRequest("default", TABLE, block.header, block.body, block.rows, 0, 30.0, None, 60.0)
            )


def configuration(folder: Path, stack: Stack, cluster: KafkaCluster, server: ClickHouseServer) -> str:
    """The file that the audit reads."""
    file = folder / "aggregator.yaml"
    clusters = [{"name": cluster.name, "bootstrapServers": cluster.bootstrap_servers}]
    settings = {
        "pipeline": "bench",
        "shard": "01",
        "replica": "r1",
        "kafka": {"topic": TOPIC, "group": "bench", "clusters": clusters},
        "clickhouse": {"host": server.host, "port": server.port},
        "zookeeper": {"servers": stack.zookeeper.connect, "root": ROOT},
    }
    file.write_text(yaml.safe_dump(settings))
    return str(file)


if __name__ == "__main__":
    typer.run(main)
