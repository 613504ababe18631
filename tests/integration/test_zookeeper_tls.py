"""Sessions over TLS: the aggregator's, the operator's and a current ClickHouse's, and never with another authority."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from blockhouse.config.endpoints import Tls, ZooKeeper
from blockhouse.errors import Retryable
from blockhouse_aggregator.coordination.session import Session
from blockhouse_operator.adapters.ensemble import Ensemble
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.desired import clickhouse
from e2e.clickhouse_choice import OLDEST
from e2e.cluster.pki import Authority
from e2e.stack.ports import Ports
from e2e.stack.spec import StackSpec
from e2e.stack.zookeeper import ZooKeeperServer
from tests.integration.kafka_authority import authority_of_brokers
from tests.integration.pod_server import PodServer, replica_of, running
from tests.unit.operator.resources import pipeline

pytestmark = pytest.mark.integration


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    made = authority_of_brokers(tmp_path_factory.mktemp("authority"))
    shutil.copy(made.certificate, made.folder / "ca.pem")  # ZooKeeper knows the form by the file's ending
    return made


@pytest.fixture(scope="module")
def zookeeper(authority: Authority, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    ports, folder = Ports(), tmp_path_factory.mktemp("zookeeper")
    server = ZooKeeperServer(
        "zookeeper",
        folder,
        port=ports["plain"],
        dies_with_parent=True,
        tls=authority.folder,
        secure_port=ports["secure"],
    )
    with running(ports, server):
        yield server


def settings(zookeeper: ZooKeeperServer, authority: Authority, **changes: Any) -> ZooKeeper:
    certificate, key = authority.issue("client", "/CN=blockhouse")
    tls = Tls(ca_file=authority.certificate, cert_file=certificate, key_file=key).model_copy(update=changes)
    return ZooKeeper(servers=f"127.0.0.1:{zookeeper.secure_port}", tls=tls)


def test_an_aggregator_and_the_operator_have_sessions_over_tls(
    zookeeper: ZooKeeperServer, authority: Authority
) -> None:
    config = settings(zookeeper, authority)
    with Session(config) as session, closing(Ensemble(config, OpenFence())) as ensemble:
        assert session.znodes.get("/blockhouse") is not None
        assert ensemble.claim_restart("/blockhouse", 0, "clicks-0-a-0") == "clicks-0-a-0"


@pytest.mark.parametrize("problem", ["another authority", "no certificate"])
def test_a_server_that_is_not_trusted_and_a_client_that_is_not_are_refused(
    zookeeper: ZooKeeperServer, authority: Authority, problem: str, tmp_path: Path
) -> None:
    if problem == "another authority":
        other = Authority(tmp_path)
        other.create()
        changes: dict[str, Any] = {"ca_file": other.certificate}
    else:
        changes = {"cert_file": None, "key_file": None}
    session = Session(settings(zookeeper, authority, **changes), timeout=3)
    with closing(session), pytest.raises(Retryable, match=str(zookeeper.secure_port)):
        session.connect()


class SecurePodServer(PodServer):
    """A server of a pod whose ensemble is reached over TLS, with this machine's certificates."""

    certificates: dict[str, Path]

    def prepare(self) -> list[str]:
        command = super().prepare()[3:]  # without the shell that waits for ZooKeeper, as in a pod
        secure = {"caSecretRef": {"name": "ca"}, "clientSecretRef": {"name": "client"}}
        servers = ("spec.zookeeper.ensembles.0.servers", [f"127.0.0.1:{self._zookeeper_port}"])
        here = [(f"spec.zones.{zone}.hostTemplate", "127.0.0.1") for zone in (0, 1)]
        tls = ("spec.zookeeper.ensembles.0.tls", secure)
        text = clickhouse.server(resolve(pipeline(servers, tls, *here), 1))
        for name, path in self.certificates.items():
            text = text.replace(f"/etc/blockhouse/zookeeper-login/{name}", str(path))
        self.write("config.xml", text)
        return command


@pytest.mark.clickhouse
def test_a_current_clickhouse_replicates_by_an_ensemble_over_tls(
    zookeeper: ZooKeeperServer, authority: Authority, tmp_path: Path
) -> None:
    ports = Ports()
    if StackSpec().clickhouse == OLDEST:
        pytest.skip("18.16 does not know TLS to ZooKeeper")
    certificate, key = authority.issue("client", "/CN=blockhouse")
    server = replica_of(SecurePodServer, tmp_path, ports, 1, zookeeper.secure_port)
    server.certificates = {"ca.crt": authority.certificate, "tls.crt": certificate, "tls.key": key}
    with running(ports, server):
        engine = "ReplicatedMergeTree('/clickhouse/tables/{shard}/secure', '{replica}')"
        server.execute(f"CREATE TABLE default.secure (a UInt8) ENGINE = {engine} ORDER BY a")
        server.execute("INSERT INTO default.secure SELECT 7")
        assert server.execute("SELECT a FROM default.secure") == [(7,)]
