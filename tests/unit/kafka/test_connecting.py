"""Clients made while a secret or a certificate is gone: an error of ours with the cause, and members that come back."""

from __future__ import annotations

import queue
from collections.abc import Callable
from concurrent.futures import Future
from pathlib import Path
from typing import Any

import pytest

from blockhouse.config.endpoints import KafkaCluster, Sasl, Tls
from blockhouse.config.pipeline import Kafka
from blockhouse.config.secrets import SecretRef
from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.connecting import admin_client
from blockhouse_aggregator.kafka.fetch import StreamReader
from blockhouse_aggregator.kafka.log_ends import LogEnds
from blockhouse_aggregator.kafka.member import GroupMember

NOWHERE = "127.0.0.1:1"
STREAM = StreamId("a", "t", 0)


def login(password: Path) -> KafkaCluster:
    sasl = Sasl(mechanism="PLAIN", username="u", password=SecretRef(file=password))
    return KafkaCluster(name="a", bootstrap_servers=NOWHERE, sasl=sasl)


def encrypted(ca: Path) -> KafkaCluster:
    return KafkaCluster(name="a", bootstrap_servers=NOWHERE, tls=Tls(ca_file=ca))


@pytest.mark.parametrize("cluster", [login, encrypted])
@pytest.mark.parametrize(
    "connect",
    [lambda cluster: admin_client(cluster, {}), LogEnds, lambda cluster: StreamReader(cluster, STREAM)],
    ids=["admin", "log-ends", "reader"],
)
def test_a_client_that_lacks_a_file_is_an_error_that_may_pass(
    tmp_path: Path, cluster: Callable[[Path], KafkaCluster], connect: Callable[[KafkaCluster], Any]
) -> None:
    file = tmp_path / "gone"
    with pytest.raises(Retryable, match=f"file {file} of the configuration cannot be read: No such file"):
        connect(cluster(file))


@pytest.mark.parametrize(
    "connect",
    [lambda cluster: admin_client(cluster, {}), LogEnds, lambda cluster: StreamReader(cluster, STREAM)],
    ids=["admin", "log-ends", "reader"],
)
def test_a_client_that_cannot_use_a_file_names_the_setting(
    tmp_path: Path, connect: Callable[[KafkaCluster], Any]
) -> None:
    file = tmp_path / "ca"
    file.write_text("no certificate")
    with pytest.raises(Retryable, match=r"ssl\.ca\.location failed"):
        connect(encrypted(file))


class Listener:
    """Keeps what failed."""

    def __init__(self) -> None:
        self.failures: queue.SimpleQueue[BlockhouseError] = queue.SimpleQueue()

    def assigned(self, stream: StreamId, epoch: int) -> None:
        raise AssertionError("no group answers")

    def settling(self, held: object) -> Future[None]:
        raise AssertionError("no group answers")

    def dropped(self, stream: StreamId, epoch: int, reason: str) -> None:
        raise AssertionError("no group answers")

    def failed(self, error: BlockhouseError) -> None:
        self.failures.put(error)

    def recovered(self) -> None:
        raise AssertionError("no cluster answers")


def test_a_member_without_its_password_joins_as_soon_as_it_is_back(tmp_path: Path) -> None:
    password, listener = tmp_path / "password", Listener()
    cluster = login(password)
    member = GroupMember(cluster, Kafka(topic="t", group="g", clusters=(cluster,)), "r1", listener)
    try:
        member.join().result(60)
        assert listener.failures.get(timeout=60).reason == "SecretMissing"
        (tmp_path / "written").write_text("secret")
        (tmp_path / "written").rename(password)
        later = listener.failures.get(timeout=60)  # of a session, that no broker answers
        assert later.reason == ""
        assert "joining" not in str(later)
    finally:
        member.close(leave=False)


def test_a_member_that_left_does_not_come_back_with_its_password(tmp_path: Path) -> None:
    password, listener = tmp_path / "password", Listener()
    cluster = login(password)
    member = GroupMember(cluster, Kafka(topic="t", group="g", clusters=(cluster,)), "r1", listener)
    try:
        member.join().result(60)
        assert listener.failures.get(timeout=60).reason == "SecretMissing"
        member.leave().result(60)
        assert member._open_again_at is None
    finally:
        member.close(leave=False)


def read_until_it_fails(reader: StreamReader) -> None:
    while True:
        reader.read(1, 0.1)


def test_a_reader_that_no_broker_accepts_fails_again_once_its_certificates_were_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A client reports once that it cannot connect, however often it tries: another lease may have heard it."""
    reader = StreamReader(KafkaCluster(name="a", bootstrap_servers=NOWHERE), STREAM)
    reader.seek(0)
    with pytest.raises(Retryable, match="no broker can be reached"):
        read_until_it_fails(reader)
    reader.seek(0)
    assert reader.read(1, 0) == []
    monkeypatch.setattr(StreamReader, "outdated", True)
    with pytest.raises(Retryable, match="no broker can be reached"):
        reader.read(1, 0)
    reader.close()
