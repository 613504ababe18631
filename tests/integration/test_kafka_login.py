"""A password that is replaced, in Kafka and in its file, and clients that were connected before."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # re-exported, undeclared
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from blockhouse import kafka_login
from blockhouse.config.endpoints import KafkaCluster, Sasl
from blockhouse.config.secrets import SecretRef
from blockhouse.errors import BlockhouseError
from blockhouse.producer.transport import Transport
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.fetch import StreamReader
from blockhouse_mirror.work.source import Source
from blockhouse_mirror.work.target import Target
from e2e.stack import StackSpec
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from e2e.stack.process import wait_until

pytestmark = pytest.mark.integration

USER, FORMER, PRESENT = "loader", "former-password", "present-password"
TOPIC = "events"
STREAM = StreamId("a", TOPIC, 0)


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[KafkaClusterServers]:
    with kafka_cluster("login", tmp_path, {1: {}}, StackSpec(kafka_scram={USER: FORMER})) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
        admin.create_topics([NewTopic(TOPIC, 1, 1)])[TOPIC].result(30)
        yield cluster


def test_clients_log_in_with_the_password_that_the_file_has_now(
    kafka: KafkaClusterServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_login, "LOOK_SECONDS", 0.0)
    secret = tmp_path / "password"
    secret.write_text(FORMER)
    sasl = Sasl(mechanism="SCRAM-SHA-256", username=USER, password=SecretRef(file=secret))
    cluster = KafkaCluster(name="a", bootstrap_servers=kafka.sasl_bootstrap, sasl=sasl)
    transport, target = Transport([cluster], TOPIC, delivery_timeout=60), Target(cluster, "mirror", 1 << 20, "none")
    with StreamReader(cluster, STREAM) as reader, contextlib.closing(Source(cluster, "mirror", 1 << 20)) as source:
        arrived = Arrived(reader, source)
        reader.seek(0)
        source.add([((TOPIC, 0), 0, -1)])
        assert sent(transport, target) == 2
        assert wait_until(lambda: arrived() == (2, 2), timeout=60)

        secret.write_text(PRESENT)
        replaced(kafka, PRESENT)

        assert sent(transport, target) == 2
        assert wait_until(lambda: arrived() == (4, 4), timeout=60)


def sent(transport: Transport, target: Target) -> int:
    """One message by each; how many were acknowledged."""
    errors: list[Any] = []
    transport.send(b"by a producer", {})
    target.send(TOPIC, 0, [(b"by a mirror", None, 1, [])], lambda error, _: errors.append(error))

    def reported() -> bool:
        target.poll(0.1)
        return bool(errors)

    assert wait_until(reported, timeout=60)
    transport.flush(60)
    return 1 + errors.count(None)


def replaced(kafka: KafkaClusterServers, password: str) -> None:
    """In Kafka, which then forgets who was logged in."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(USER, info, password.encode())
    admin.alter_user_scram_credentials([change])[USER].result(30)
    for broker in kafka.brokers:
        broker.stop()
        broker.start()


class Arrived:
    """How many messages a reader and a mirror have read."""

    def __init__(self, reader: StreamReader, source: Source) -> None:
        self._reader, self._source = reader, source
        self._counts = [0, 0]

    def __call__(self) -> tuple[int, ...]:
        """By now."""
        self._counts[0] += len(self._read())
        self._counts[1] += sum(message.error() is None for message in self._source.read(100, 0.1))
        return tuple(self._counts)

    def _read(self) -> list[Any]:
        try:
            return self._reader.read(100, 0.1)
        except BlockhouseError:  # the broker is down, or came back before the client was given the password
            self._reader.seek(self._reader.position)
            return []
