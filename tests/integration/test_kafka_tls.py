"""A login over TLS with client certificates: by the client of `topics`, `load` and the operator, and by a member."""

from __future__ import annotations

import contextlib
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockhouse.config.endpoints import KafkaCluster, Sasl, Tls
from blockhouse.config.secrets import SecretRef
from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.fleet.kafka_client import KafkaRequests
from e2e.cluster.pki import Authority
from e2e.stack import StackSpec
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from tests.integration.kafka_authority import authority_of_brokers
from tests.integration.kafka_recorder import member, settings_of

pytestmark = pytest.mark.integration

USER, PASSWORD = "fleet", "not-secret"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return authority_of_brokers(tmp_path / "authority")


@pytest.fixture
def kafka(tmp_path: Path, authority: Authority) -> Iterator[KafkaClusterServers]:
    spec = StackSpec(kafka_scram={USER: PASSWORD}, kafka_tls=str(authority.folder))
    with kafka_cluster("tls", tmp_path, {1: {}}, spec) as cluster:
        yield cluster


def test_brokers_are_asked_over_tls_and_what_keeps_a_client_out_is_named(
    kafka: KafkaClusterServers, authority: Authority, tmp_path: Path
) -> None:
    certificate, key = authority.issue("client", "/CN=aggregator")
    stranger = Authority(tmp_path / "stranger")
    stranger.create()

    def brokers(trusted: Authority = authority, password: str = PASSWORD, key_file: Path | None = key) -> list[int]:
        (secret := tmp_path / "password").write_text(password)
        tls = Tls(ca_file=trusted.certificate, cert_file=certificate if key_file else None, key_file=key_file)
        sasl = Sasl(mechanism="SCRAM-SHA-256", username=USER, password=SecretRef(file=secret))
        cluster = KafkaCluster(name="a", bootstrap_servers=kafka.sasl_bootstrap, sasl=sasl, tls=tls)
        with contextlib.closing(KafkaRequests(cluster, patience=1, request_timeout_ms=3000)) as requests:
            return [broker["broker_id"] for broker in requests.ask("describe_cluster")["brokers"]]

    assert brokers() == [1]
    with pytest.raises(Retryable, match=r"certificate verify failed.*check the authority of `tls`"):
        brokers(trusted=stranger)
    with pytest.raises(Retryable, match=r"bad certificate.*check the authority of `tls`"):
        brokers(key_file=None)
    with pytest.raises(
        BlockhouseError, match=r"(?i)authentication.*check SASL mechanism, user and password"
    ) as refused:
        brokers(password="wrong-one")
    assert "wrong-one" not in str(refused.value)


def test_a_member_that_cannot_connect_takes_certificates_that_were_replaced(
    kafka: KafkaClusterServers, authority: Authority, tmp_path: Path
) -> None:
    (mounted := tmp_path / "mounted").mkdir()
    (secret := tmp_path / "password").write_text(PASSWORD)
    mount(authority, mounted)
    tls = Tls(ca_file=mounted / "ca.crt", cert_file=mounted / "tls.crt", key_file=mounted / "tls.key")
    sasl = Sasl(mechanism="SCRAM-SHA-256", username=USER, password=SecretRef(file=secret))
    cluster = KafkaCluster(name="a", bootstrap_servers=kafka.sasl_bootstrap, sasl=sasl, tls=tls)
    kafka.create_topic("events", partitions=1)
    _, settings = settings_of(kafka.sasl_bootstrap, "events", "group")
    with member(cluster, settings, "r1") as (_, heard):
        heard.owns(1)
        later = authority_of_brokers(tmp_path / "later")
        for name in ("server.pem", "ca.crt"):
            shutil.copyfile(later.folder / name, authority.folder / name)
        for broker in kafka.brokers:
            broker.restart()
        heard.wait(lambda: bool(heard.failures))

        mount(later, mounted)
        heard.wait(lambda: heard.recoveries == 1)
        heard.owns(1)


def mount(authority: Authority, folder: Path) -> None:
    """Let a client have the certificates of this authority, as a kubelet brings them."""
    certificate, key = authority.issue("member", "/CN=aggregator")
    for file, name in ((authority.certificate, "ca.crt"), (certificate, "tls.crt"), (key, "tls.key")):
        shutil.copyfile(file, folder / name)
