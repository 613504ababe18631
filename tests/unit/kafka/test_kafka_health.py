"""One `failed` and one `recovered` out of the many events of a client."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import Future
from typing import cast

import pytest
from confluent_kafka import KafkaError

from blockhouse.errors import BlockhouseError, Permanent, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka import health
from blockhouse_aggregator.kafka.group import DropReason
from blockhouse_aggregator.kafka.health import Health
from blockhouse_aggregator.kafka.session import Session

LOST = KafkaError(KafkaError._TRANSPORT)
DOWN = KafkaError(KafkaError._ALL_BROKERS_DOWN)
UNREACHABLE = Retryable("no broker answers")


class Listener:
    def __init__(self) -> None:
        self.heard: list[BlockhouseError | str] = []

    def assigned(self, stream: StreamId, epoch: int) -> None:
        raise AssertionError("not about streams", stream, epoch)

    def settling(self, held: Mapping[StreamId, int]) -> Future[None]:
        raise AssertionError("not about streams", held)

    def dropped(self, stream: StreamId, epoch: int, reason: DropReason) -> None:
        raise AssertionError("not about streams", stream, epoch, reason)

    def failed(self, error: BlockhouseError) -> None:
        self.heard.append(error)

    def recovered(self) -> None:
        self.heard.append("recovered")


class Cluster:
    """Stands for the session whose probes ask the cluster."""

    def __init__(self) -> None:
        self.answer: BlockhouseError | None = None
        self.probes = 0

    def probe(self, timeout: float) -> BlockhouseError | None:
        assert timeout <= 1
        self.probes += 1
        return self.answer


@pytest.fixture(autouse=True)
def _no_pause_between_probes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(health, "_PAUSE_SECONDS", 0.0)


@pytest.fixture
def listener() -> Listener:
    return Listener()


@pytest.fixture
def cluster() -> Cluster:
    return Cluster()


def check(subject: Health, cluster: Cluster) -> None:
    subject.check(cast(Session, cluster))


def test_no_broker_is_asked_while_nothing_is_suspected(listener: Listener, cluster: Cluster) -> None:
    check(Health(listener, "a"), cluster)
    assert (cluster.probes, listener.heard) == (0, [])


def test_one_lost_connection_of_a_cluster_that_answers_is_not_reported(listener: Listener, cluster: Cluster) -> None:
    subject = Health(listener, "a")
    subject.report(LOST)
    check(subject, cluster)
    check(subject, cluster)
    assert (cluster.probes, listener.heard) == (1, [])


def test_an_outage_is_reported_once_and_its_end_once(listener: Listener, cluster: Cluster) -> None:
    subject = Health(listener, "a")
    cluster.answer = UNREACHABLE
    for _ in range(3):
        subject.report(DOWN)
        check(subject, cluster)
    cluster.answer = None
    check(subject, cluster)
    check(subject, cluster)
    failure, end = listener.heard
    assert isinstance(failure, Retryable)
    assert "cluster a" in str(failure)
    assert end == "recovered"


def test_a_wrong_password_is_reported_as_such_among_plain_disconnects(listener: Listener, cluster: Cluster) -> None:
    subject = Health(listener, "a")
    cluster.answer = UNREACHABLE
    subject.report(LOST)
    check(subject, cluster)
    subject.report(KafkaError(KafkaError._AUTHENTICATION))
    subject.report(DOWN)
    check(subject, cluster)
    _, failure = listener.heard
    assert isinstance(failure, Retryable), "its file may have the right one in a minute"
    assert failure.reason == "AuthenticationFailed"


def test_a_group_we_may_not_read_heals_with_an_assignment_and_not_with_a_probe(
    listener: Listener, cluster: Cluster
) -> None:
    subject = Health(listener, "a")
    subject.report(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED))
    check(subject, cluster)
    assert [entry.reason if isinstance(entry, BlockhouseError) else entry for entry in listener.heard] == [
        "NotAuthorized"
    ]
    subject.assigned()
    assert listener.heard[-1] == "recovered"


def test_a_missing_offset_or_a_long_pause_is_no_failure(listener: Listener, cluster: Cluster) -> None:
    subject = Health(listener, "a")
    for code in (KafkaError._AUTO_OFFSET_RESET, KafkaError._MAX_POLL_EXCEEDED, KafkaError._PARTITION_EOF):
        subject.report(KafkaError(code))
    check(subject, cluster)
    assert (cluster.probes, listener.heard, subject.fatal) == (0, [], None)


def test_a_fatal_error_is_kept_for_the_member_to_stop(listener: Listener) -> None:
    subject = Health(listener, "a")
    subject.report(KafkaError(KafkaError.FENCED_INSTANCE_ID))
    assert isinstance(subject.fatal, Permanent)
    subject.reset()
    assert subject.fatal is None
