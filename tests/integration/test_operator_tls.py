"""Servers started from the operator's own files that speak TLS: beside plain ports, and two replicas without those."""

from __future__ import annotations

import asyncio
import ssl
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from clickhouse_driver import Client
from clickhouse_driver.errors import NetworkError

from blockhouse.config.endpoints import ClickHouse, Tls
from blockhouse.errors import Retryable
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_operator.adapters.clickhouse_http import ClickHouseHttp, Login
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.api.resolve import all_replicas, resolve
from blockhouse_operator.desired import clickhouse
from blockhouse_operator.desired.clickhouse import CLUSTER_USER
from e2e.clickhouse_choice import OLDEST
from e2e.cluster.pki import Authority
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from e2e.stack.spec import StackSpec
from e2e.stack.zookeeper import ZooKeeperServer
from tests.integration.kafka_authority import authority_of_brokers
from tests.integration.pod_server import CLUSTER, PodServer, replica_of, running, skip_on_the_stand_in
from tests.unit.operator.resources import pipeline

pytestmark = [pytest.mark.integration, pytest.mark.clickhouse]


class SecureServer(PodServer):
    """A server whose files are those of `tls`. It lists its peer in place of every replica."""

    authority: Authority
    peer: int
    mode = "Required"

    def prepare(self) -> list[str]:
        self.environment = {**PodServer.environment, clickhouse.REPLICA: self.name}
        command = super().prepare()
        tls = {"secretRef": {"name": "certificate"}, "caSecretRef": {"name": "ca"}, "mode": self.mode}
        made = pipeline(
            ("spec.zookeeper.ensembles.0.servers", [f"127.0.0.1:{self._zookeeper_port}"]),
            ("spec.clickhouse.managed.tls", tls),
            *((f"spec.zones.{zone}.hostTemplate", "127.0.0.1") for zone in (0, 1)),
        )
        certificate, key = self.authority.issue("server", "/CN=127.0.0.1")
        files = {"ca.crt": self.authority.certificate, "tls.crt": certificate, "tls.key": key}
        text = clickhouse.server(resolve(made, 1))
        for name, path in files.items():
            text = text.replace(f"/etc/blockhouse/clickhouse-tls/{name}", str(path))
        self.write("config.xml", text)
        passwords = clickhouse.Passwords({CLUSTER_USER: CLUSTER})
        listed = clickhouse.remote_servers("events", all_replicas(made), passwords, secure=made.spec.clickhouse.secure)
        self.write("config.d/remote_servers.xml", listed.replace("<port>9440<", f"<port>{self.peer}<"))
        return command

    def ports_here(self) -> dict[int, int]:
        return {**super().ports_here(), 8443: self.http_port, 9440: self.port, 9010: self._interserver_port}

    def execute(self, sql: str, params: Any = None, **settings: Any) -> list[tuple[Any, ...]]:
        way = {"secure": True, "ca_certs": str(self.authority.certificate), "settings": settings}
        with Client(self.host, self.port, **way) as client:
            rows = client.execute(sql, params)
        return rows if isinstance(rows, list) else []

    def _get(self, query: str | None) -> str:
        trust = ssl.create_default_context(cafile=str(self.authority.certificate))
        url = f"https://{self.host}:{self.http_port}/" + (f"?query={quote(query)}" if query else "")
        with urllib.request.urlopen(url, timeout=2, context=trust) as reply:
            return bytes(reply.read()).decode().strip()


class WithPlainPorts(SecureServer):
    """The same with `mode: Allowed`; the harness uses the ports with TLS."""

    mode = "Allowed"
    plain: dict[int, int]

    def ports_here(self) -> dict[int, int]:
        return {**super().ports_here(), **self.plain}


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[SecureServer]]:
    if StackSpec().clickhouse == OLDEST:
        pytest.skip("18.16 does not start without a port without TLS")
    skip_on_the_stand_in("has no port with TLS")
    folder, ports = tmp_path_factory.mktemp("secure"), Ports()
    authority = authority_of_brokers(folder / "authority")
    zookeeper = ZooKeeperServer("zookeeper", folder / "zookeeper", port=ports["zookeeper"], dies_with_parent=True)
    servers = [replica_of(SecureServer, folder, ports, number, zookeeper.port) for number in (1, 2)]
    for server, peer in zip(servers, reversed(servers), strict=True):
        server.authority, server.peer = authority, peer.port
    with running(ports, zookeeper, *servers):
        yield servers


def test_replicas_fetch_and_query_each_other_over_tls(replicas: list[SecureServer]) -> None:
    engine = "ReplicatedMergeTree('/clickhouse/tables/{shard}/secure', '{replica}')"
    for replica in replicas:
        replica.execute(f"CREATE TABLE default.secure (a UInt8) ENGINE = {engine} ORDER BY a")
    replicas[0].execute("INSERT INTO default.secure VALUES", [(7,)])
    assert wait_until(lambda: replicas[1].execute("SELECT a FROM default.secure") == [(7,)], timeout=60)

    replicas[1].execute("CREATE TABLE default.only_there (a UInt8) ENGINE = TinyLog")
    replicas[1].execute("INSERT INTO default.only_there VALUES", [(9,)])
    assert replicas[0].execute("SELECT a FROM cluster('events', default.only_there)") == [(9,)]


def test_the_aggregator_and_the_operator_reach_it(replicas: list[SecureServer]) -> None:
    with Replica(ClickHouse(port=replicas[0].port, tls=Tls(verify=False))) as own:
        assert own.query("SELECT 1") == [(1,)]
    base = f"https://127.0.0.1:{replicas[0].http_port}"
    login = Login(CLUSTER_USER, CLUSTER, replicas[0].authority.certificate.read_text())

    async def ask() -> None:
        http = ClickHouseHttp(OpenFence())
        try:
            assert [table.name for table in await http.replicated_tables(base, login)] == ["default.secure"]
            with pytest.raises(Retryable, match="does not answer"):
                await http.replicated_tables(base, Login(CLUSTER_USER, CLUSTER))  # the system does not know them
        finally:
            await http.close()

    asyncio.run(ask())


def test_no_port_answers_without_tls(replicas: list[SecureServer]) -> None:
    server = replicas[0]
    for port in (server.http_port, server.interserver_port):
        with pytest.raises((urllib.error.URLError, OSError)):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/ping", timeout=5)
    with pytest.raises((NetworkError, EOFError)), Client("127.0.0.1", server.port) as plain:
        plain.execute("SELECT 1")


def test_beside_its_plain_ports_a_server_has_those_with_tls(tmp_path: Path) -> None:
    skip_on_the_stand_in("has no port with TLS")
    ports = Ports()
    zookeeper = ZooKeeperServer("zookeeper", tmp_path / "zookeeper", port=ports["zookeeper"], dies_with_parent=True)
    server = replica_of(WithPlainPorts, tmp_path, ports, 1, zookeeper.port)
    server.authority, server.peer = authority_of_brokers(tmp_path / "authority"), server.port
    server.plain = {8123: ports["plain-http"], 9000: ports["plain"], 9009: server.interserver_port}
    with running(ports, zookeeper, server):
        assert server.execute("SELECT 1") == [(1,)]
        with Client("127.0.0.1", ports["plain"]) as plain:
            assert plain.execute("SELECT 1") == [(1,)]
