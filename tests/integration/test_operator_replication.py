"""Whether the operator knows, on real replicas, when the data of one of them is on the others."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from contextlib import closing, suppress
from typing import TypeVar

import pytest
from clickhouse_driver.errors import ServerException

from blockhouse.config.endpoints import ZooKeeper
from blockhouse.errors import Permanent, Retryable
from blockhouse_operator.adapters.clickhouse_http import ClickHouseHttp, Login
from blockhouse_operator.adapters.ensemble import Ensemble
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.decide.replication import Copies, ReplicationSeen, copies
from e2e.clickhouse_choice import OLDEST
from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from e2e.stack.spec import StackSpec
from e2e.stack.zookeeper import ZooKeeperServer

pytestmark = pytest.mark.integration

ROOT = "/clickhouse/tables"
LOGIN = Login("default", "")
FIRST_ROWS, LATER_ROWS = 10_000, 1_000

Result = TypeVar("Result")


class Shard:
    """Three replicas of one shard and their ZooKeeper."""

    def __init__(self, zookeeper: ZooKeeperServer, servers: dict[str, ClickHouseServer]) -> None:
        self.zookeeper = zookeeper
        self.servers = servers

    def create(self, table: str, *replicas: str) -> None:
        for replica in replicas:
            engine = f"ReplicatedMergeTree('{ROOT}/{table}', '{replica}')"
            self.servers[replica].execute(f"CREATE TABLE {table} (a UInt64) ENGINE = {engine} ORDER BY a")

    def seen(self, table: str, leaving: str = "r1") -> ReplicationSeen:
        return asyncio.run(self._seen(table, leaving))

    async def _seen(self, table: str, leaving: str) -> ReplicationSeen:
        http = ClickHouseHttp(OpenFence())
        base = f"http://127.0.0.1:{self.servers[leaving].http_port}"
        with closing(Ensemble(ZooKeeper(servers=self.zookeeper.connect), OpenFence())) as ensemble:
            try:
                names = {found.path: found.name for found in await http.replicated_tables(base, LOGIN)}
                sizes = await http.part_sizes(base, LOGIN)
                tables = await asyncio.to_thread(ensemble.replicas_of_tables, [f"{ROOT}/{table}"])
            finally:
                await http.close()
        return ReplicationSeen(tables, names=names, sizes={path: sizes.get(name, {}) for path, name in names.items()})

    def forget(self, replica: str, table: str) -> None:
        """Remove its registration, as when a replica is taken out."""
        with closing(Ensemble(ZooKeeper(servers=self.zookeeper.connect), OpenFence())) as ensemble:
            ensemble.unregister(f"{ROOT}/{table}", replica)

    def readonly(self, replica: str) -> set[str]:
        """Its tables that take no rows."""
        found = asyncio.run(self._ask(replica, lambda http, base: http.replicated_tables(base, LOGIN)))
        return {table.name for table in found if table.readonly}

    def restore(self, replica: str, table: str) -> None:
        asyncio.run(self._ask(replica, lambda http, base: http.restore(base, LOGIN, table)))

    async def _ask(self, replica: str, question: Callable[[ClickHouseHttp, str], Awaitable[Result]]) -> Result:
        http = ClickHouseHttp(OpenFence())
        try:
            return await question(http, f"http://127.0.0.1:{self.servers[replica].http_port}")
        finally:
            await http.close()

    def copies(self, table: str) -> Copies:
        return copies("r1", ["r2", "r3"], 2, self.seen(table))


@pytest.fixture(scope="module")
def shard(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Shard]:
    folder, ports = tmp_path_factory.mktemp("replication"), Ports()
    zookeeper = ZooKeeperServer("zookeeper", folder / "zookeeper", port=ports["zookeeper"], dies_with_parent=True)
    own = {
        number: {purpose: ports[f"{purpose}-{number}"] for purpose in ("native", "http", "interserver")}
        for number in (1, 2, 3)
    }
    servers = {
        f"r{number}": ClickHouseServer(
            f"clickhouse-{number}",
            folder / f"r{number}",
            spec=StackSpec(),
            id=(1, number),
            ports=mine,
            cluster={(1, other): each["native"] for other, each in own.items()},
            zookeeper_port=zookeeper.port,
            dies_with_parent=True,
        )
        for number, mine in own.items()
    }
    try:
        for server in (zookeeper, *servers.values()):
            server.start()
        yield Shard(zookeeper, servers)
    finally:
        for server in (*servers.values(), zookeeper):
            server.kill()
        ports.release()


def eventually(found: Callable[[], bool]) -> None:
    assert wait_until(found, timeout=60)


def test_a_replica_without_the_table_is_no_copy_until_it_has_fetched_everything(shard: Shard) -> None:
    shard.create("default.moved", "r1", "r2")
    shard.servers["r1"].execute("INSERT INTO default.moved SELECT number FROM system.numbers LIMIT 10000")
    eventually(lambda: shard.copies("default.moved").complete == ("r2",))
    missing = shard.copies("default.moved")
    assert missing.lacking == {"r3": "does not have table default.moved"}
    assert missing.parts_left == 1
    assert missing.bytes_left is not None
    assert missing.bytes_left > 10_000, "8 bytes a row, compressed"

    shard.create("default.moved", "r3")

    eventually(lambda: shard.copies("default.moved").complete == ("r2", "r3"))
    assert shard.copies("default.moved").left == ""
    assert shard.servers["r3"].execute("SELECT count() FROM default.moved") == [(10_000,)]


def test_a_replica_that_fetches_nothing_is_no_copy(shard: Shard) -> None:
    shard.create("default.lagging", "r1", "r2", "r3")
    shard.servers["r3"].execute("SYSTEM STOP FETCHES")
    shard.servers["r1"].execute("INSERT INTO default.lagging VALUES", [(1,)])  # type: ignore[arg-type]

    eventually(lambda: shard.copies("default.lagging").complete == ("r2",))
    eventually(lambda: "still fetches 1 part of" in shard.copies("default.lagging").lacking["r3"])
    shard.servers["r3"].execute("SYSTEM START FETCHES")
    eventually(lambda: len(shard.copies("default.lagging").complete) == 2)


def merged(server: ClickHouseServer) -> bool:
    """Whether the table is one part. OPTIMIZE fails on 18.16 (code 49) when a merge has begun already by itself."""
    with suppress(ServerException):
        server.execute("OPTIMIZE TABLE default.merged FINAL")
    sql = "SELECT count() FROM system.parts WHERE database = 'default' AND table = 'merged' AND active"
    return server.execute(sql) == [(1,)]


def test_merged_parts_are_copies_and_a_dead_server_is_none(shard: Shard) -> None:
    shard.create("default.merged", "r1", "r2", "r3")
    for number in range(3):
        shard.servers["r1"].execute("INSERT INTO default.merged VALUES", [(number,)])  # type: ignore[arg-type]
    eventually(lambda: merged(shard.servers["r1"]))
    eventually(lambda: len(shard.copies("default.merged").complete) == 2)

    shard.servers["r2"].stop()

    eventually(lambda: "is not active" in shard.copies("default.merged").lacking.get("r2", ""))
    assert shard.copies("default.merged").complete == ("r3",)
    shard.servers["r2"].start()
    eventually(lambda: len(shard.copies("default.merged").complete) == 2)


def test_a_server_that_refuses_or_is_unavailable_is_named_and_no_password_is(shard: Shard) -> None:
    async def ask(port: int, login: Login) -> None:
        http = ClickHouseHttp(OpenFence())
        try:
            await http.replicated_tables(f"http://127.0.0.1:{port}", login)
        finally:
            await http.close()

    with pytest.raises(Permanent) as refused:
        asyncio.run(ask(shard.servers["r1"].http_port, Login("unknown-user", "very secret")))
    assert "very secret" not in str(refused.value)
    with pytest.raises(Retryable, match="does not answer"):
        asyncio.run(ask(1, LOGIN))


@pytest.mark.clickhouse
def test_a_volume_that_returns_is_registered_again_where_the_server_can(shard: Shard) -> None:
    """Of a shard that had three replicas, then two, and has three again."""
    table = "default.returned"
    shard.create(table, "r1", "r2", "r3")
    fill(shard.servers["r1"], table, FIRST_ROWS)
    eventually(lambda: shard.copies(table).complete == ("r2", "r3"))
    if StackSpec().clickhouse == OLDEST:
        with pytest.raises(Permanent, match="RESTORE"):  # then the volume is replaced and cloned
            shard.restore("r3", table)
        return
    shard.servers["r3"].stop()
    shard.forget("r3", table)
    fill(shard.servers["r1"], table, LATER_ROWS)
    shard.servers["r3"].start()
    eventually(lambda: shard.readonly("r3") == {table})
    assert shard.copies(table).complete == ("r2",)

    shard.restore("r3", table)

    eventually(lambda: shard.copies(table).complete == ("r2", "r3"))
    assert not shard.readonly("r3")
    rows = [server.execute(f"SELECT count(), uniqExact(a) FROM {table}") for server in shard.servers.values()]
    assert rows == [[(FIRST_ROWS + LATER_ROWS, FIRST_ROWS)]] * 3


def fill(server: ClickHouseServer, table: str, rows: int) -> None:
    server.execute(f"INSERT INTO {table} SELECT number FROM system.numbers LIMIT {rows}")
