"""Two replicas, started from the operator's own files, that fetch from each other only with the shard's credentials."""

from __future__ import annotations

import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator

import pytest

from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.desired import clickhouse
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from e2e.stack.zookeeper import ZooKeeperServer
from tests.integration.pod_server import PodServer, replica_of, running
from tests.unit.operator.resources import pipeline

pytestmark = pytest.mark.integration

PASSWORD = "between-replicas"


class Guarded(PodServer):
    """A server with `interserverSecretRef`."""

    def prepare(self) -> list[str]:
        self.environment = {
            **PodServer.environment,
            clickhouse.REPLICA: self.name,
            clickhouse.INTERSERVER_PASSWORD: PASSWORD,
        }
        command = super().prepare()
        servers = ("spec.zookeeper.ensembles.0.servers", [f"127.0.0.1:{self._zookeeper_port}"])
        guarded = ("spec.clickhouse.managed.interserverSecretRef", {"name": "interserver"})
        self.write("config.xml", clickhouse.server(resolve(pipeline(servers, guarded), 1)))
        return command


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Guarded]]:
    folder, ports = tmp_path_factory.mktemp("guarded"), Ports()
    zookeeper = ZooKeeperServer("zookeeper", folder / "zookeeper", port=ports["zookeeper"], dies_with_parent=True)
    servers = [replica_of(Guarded, folder, ports, number, zookeeper.port) for number in (1, 2)]
    with running(ports, zookeeper, *servers):
        yield servers


def test_replicas_with_the_credentials_replicate(replicas: list[Guarded]) -> None:
    for replica in replicas:
        engine = "ReplicatedMergeTree('/clickhouse/tables/{shard}/guarded', '{replica}')"
        replica.execute(f"CREATE TABLE default.guarded (a UInt8) ENGINE = {engine} ORDER BY a")
    replicas[0].execute("INSERT INTO default.guarded VALUES", [(7,)])  # type: ignore[arg-type]

    assert wait_until(lambda: replicas[1].execute("SELECT a FROM default.guarded") == [(7,)], timeout=60)


def fetch(replica: Guarded, *login: str) -> str:
    """What a stranger is answered who asks for a part."""
    path = "endpoint=DataPartsExchange:/clickhouse/tables/1/guarded/replicas/replica-1&part=all_0_0_0&compress=false"
    request = urllib.request.Request(f"http://127.0.0.1:{replica.interserver_port}/?{path}", method="POST", data=b"")
    if login:
        request.add_header("Authorization", f"Basic {b64encode(':'.join(login).encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return f"{answer.status} {answer.read()!r}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read()!r}"


def test_who_has_no_credentials_fetches_nothing(replicas: list[Guarded]) -> None:
    right = fetch(replicas[0], "interserver", PASSWORD)
    for stranger in ((), ("interserver", "guess"), ("interserver", ""), ("other", PASSWORD)):
        assert fetch(replicas[0], *stranger).startswith("401"), stranger

    assert right.startswith("200"), right
