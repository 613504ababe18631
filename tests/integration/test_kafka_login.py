"""A password that is replaced, in Kafka and then in its file, and clients that were connected before."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from functools import partial
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
from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.fleet.kafka_client import KafkaRequests
from blockhouse.kafka_errors import LOGIN_REFUSED
from blockhouse.producer.transport import Transport
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.kafka.fetch import StreamReader
from blockhouse_aggregator.kafka.log_ends import LogEnds
from blockhouse_aggregator.protocol.commits import APPLIED
from blockhouse_aggregator.verifier.offsets.bounds import LogBounds
from blockhouse_aggregator.verifier.offsets.reader import OffsetsReader
from blockhouse_mirror.kafka.topic_ids import TopicIds
from blockhouse_mirror.work.source import Source
from blockhouse_mirror.work.target import Target
from e2e.stack import StackSpec
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from e2e.stack.process import wait_until
from tests.integration.kafka_recorder import member, settings_of

pytestmark = [pytest.mark.integration, pytest.mark.long]

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
    cluster, secret = logging_in(kafka, tmp_path)
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


def logging_in(kafka: KafkaClusterServers, folder: Path) -> tuple[KafkaCluster, Path]:
    """The cluster as clients reach it that log in, and the file with their password."""
    (secret := folder / "password").write_text(FORMER)
    sasl = Sasl(mechanism="SCRAM-SHA-256", username=USER, password=SecretRef(file=secret))
    return KafkaCluster(name="a", bootstrap_servers=kafka.sasl_bootstrap, sasl=sasl), secret


def test_a_member_that_is_refused_states_why_and_commits_again_with_the_new_password(
    kafka: KafkaClusterServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_login, "LOOK_SECONDS", 0.0)
    cluster, secret = logging_in(kafka, tmp_path)
    _, settings = settings_of(kafka.sasl_bootstrap, TOPIC, "group", session_timeout=120)
    with member(cluster, settings, "r1") as (subject, heard):
        ((stream, epoch),) = heard.owns(1).items()
        replaced(kafka, PRESENT)

        heard.wait(lambda: any(error.reason == LOGIN_REFUSED for error in heard.failures))
        assert all(isinstance(error, Retryable) for error in heard.failures), heard.failures
        assert heard.owned == {stream: epoch}, "its session has not ended"

        secret.write_text(PRESENT)
        heard.wait(lambda: heard.recoveries == 1)
        assert subject.commit(stream, epoch, 1, "after").result(60) == APPLIED


Ask = Callable[[], object]


@contextlib.contextmanager
def asking(cluster: KafkaCluster) -> Iterator[dict[str, Ask]]:
    """Questions of clients that stay, by who asks; each has been answered once."""
    facts, ends, requests = ClusterFacts(cluster, timeout=3), LogEnds(cluster), KafkaRequests(cluster, patience=1)
    reader, bounds = OffsetsReader(cluster, first_answer=3), LogBounds(cluster, timeout=3)
    ids = TopicIds(cluster)
    with contextlib.closing(reader), contextlib.closing(requests):
        asks: dict[str, Ask] = {
            "facts": lambda: facts.topic_id(TOPIC),
            "bounds of a stream": lambda: facts.bounds(STREAM),
            "ends of logs": lambda: ends.latest([STREAM])[STREAM],
            "requests": lambda: requests.ask("describe_cluster"),
            "offsets topic": reader.partitions,
            "bounds of logs": lambda: bounds.ask([STREAM])[STREAM],
            "topic ids": lambda: ids.of([TOPIC])[TOPIC],
        }
        for name, ask in asks.items():
            assert wait_until(partial(answered, ask), timeout=60), name
        yield asks


def answered(ask: Ask, refusals: list[str] | None = None) -> bool:
    """Whether there was an answer. Nothing but Retryable may be raised: the rest stops programs, or streams."""
    try:
        ask()
        return True
    except Retryable as error:
        if refusals is not None:
            refusals.append(str(error))
        return False


def refused(ask: Ask, refusals: list[str], reason: str) -> bool:
    """Whether there was none, and the refusal names the reason."""
    return not answered(ask, refusals) and reason in refusals[-1]


NAMELESS = {"bounds of logs", "topic ids"}
"""Questions that others ask the same cluster beside, who name the reason."""


def test_who_asks_again_and_again_waits_for_the_new_password_and_names_the_reason(
    kafka: KafkaClusterServers, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(kafka_login, "LOOK_SECONDS", 0.0)
    cluster, secret = logging_in(kafka, tmp_path)
    with asking(cluster) as asks:
        replaced(kafka, PRESENT)

        for name, ask in asks.items():
            reason = "" if name in NAMELESS else "uthentication"
            refusals: list[str] = []
            assert wait_until(partial(refused, ask, refusals, reason), timeout=60, interval=0), (name, refusals)

        secret.write_text(PRESENT)
        for name, ask in asks.items():
            assert wait_until(partial(answered, ask), timeout=60, interval=0.2), name


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
    accept(kafka, password)
    for broker in kafka.brokers:
        broker.stop()
        broker.start()


def accept(kafka: KafkaClusterServers, password: str) -> None:
    """From now on, and no other; who is logged in stays."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    change = UserScramCredentialUpsertion(USER, info, password.encode())
    admin.alter_user_scram_credentials([change])[USER].result(30)


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
