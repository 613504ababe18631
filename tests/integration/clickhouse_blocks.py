"""Native blocks for tests, encoded by the server itself (`FORMAT Native` over HTTP), and whom to send them to."""

from __future__ import annotations

import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import pytest
from kazoo.client import KazooClient

from blockhouse.config.endpoints import ClickHouse
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.model import InsertRequest
from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.stack import Stack
from e2e.stack.tables import zookeeper_path

CLUSTER = "a"
PARTITION = 3
TOPIC = "events/one"
"""What the rows hold of their topic."""


@dataclass(frozen=True)
class Row:
    """A row of the tests' table (`id UInt64, text String` and provenance)."""

    offset: int
    row: int
    id: int
    text: str

    @property
    def sql(self) -> str:
        return f"({self.id}, '{self.text}', {self.offset}, {self.row})"


def rows(begin: int, end: int, *, per_message: int = 2) -> list[Row]:
    """`per_message` rows of each offset in [begin, end]; id is 10 * offset + row."""
    return [Row(o, r, 10 * o + r, f"t{o}") for o in range(begin, end + 1) for r in range(per_message)]


def block(
    server: ClickHouseServer, table: str, chosen: list[Row], *, padding: int = 0, topic: str = TOPIC, **changes: object
) -> InsertRequest:
    """The rows, of messages of `topic`, as a request for `table`, with quorum 2. `padding` lengthens texts, `changes`
    replace fields."""
    values = ", ".join(row.sql for row in chosen)
    # arrayJoin over one array keeps the rows in one block and in order.
    sql = (
        "SELECT toUInt64(r.1) AS id,"
        f" concat(r.2, arrayStringConcat(arrayMap(x -> '.', range({padding})))) AS text,"
        f" '{CLUSTER}' AS _kafka_cluster, toUInt32({PARTITION}) AS _kafka_partition,"
        " toUInt64(r.3) AS _kafka_offset, toUInt32(r.4) AS _kafka_row,"
        f" '{topic}' AS _kafka_topic"
        f" FROM (SELECT arrayJoin([{values}]) AS r) FORMAT Native"
    )
    url = f"http://{server.host}:{server.http_port}/"
    with urllib.request.urlopen(url, data=sql.encode(), timeout=10) as reply:
        body = bytes(reply.read())
    request = {
        "database": "default",
        "table": table,
        "header": (
            ("id", "UInt64"),
            ("text", "String"),
            ("_kafka_cluster", "String"),
            ("_kafka_partition", "UInt32"),
            ("_kafka_offset", "UInt64"),
            ("_kafka_row", "UInt32"),
            ("_kafka_topic", "String"),
        ),
        "body": body,
        "rows": len(chosen),
        "quorum": 2,
        "quorum_timeout": 10.0,
        "token": f"topic/{PARTITION}/{table}/{chosen[0].offset}-{chosen[-1].offset}",
        "lifetime": 20.0,
    }
    return InsertRequest(**{**request, **changes})  # type: ignore[arg-type]


def replica(server: ClickHouseServer) -> Replica:
    return Replica(ClickHouse(host=server.host, port=server.port))


def count(server: ClickHouseServer, table: str) -> int:
    return int(server.execute(f"SELECT count() FROM {table}")[0][0])


def nodes(table: str) -> str:
    """The table's path in ZooKeeper (shard 01)."""
    return zookeeper_path("01", table)


@contextmanager
def zookeeper(stack: Stack) -> Iterator[KazooClient]:
    client = KazooClient(stack.zookeeper.connect)
    client.start(timeout=15)
    try:
        yield client
    finally:
        client.stop()
        client.close()


@contextmanager
def fetches_stopped(*servers: ClickHouseServer) -> Iterator[None]:
    """These replicas fetch nothing from their peers meanwhile: no quorum can be reached."""
    for server in servers:
        server.execute("SYSTEM STOP FETCHES")
    try:
        yield
    finally:
        for server in servers:
            if server.alive:
                server.execute("SYSTEM START FETCHES")


def only(stack: Stack, *, tokens: bool) -> None:
    """Skip the test on a server that recognises blocks by something else."""
    with replica(stack.clickhouse[1, 1]) as r1:
        if r1.features().deduplication_token is not tokens:
            pytest.skip(f"of servers {'with' if tokens else 'without'} deduplication tokens")
