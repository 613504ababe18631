"""`KafkaFleet` and brokers that die: the client is a pretended one, real brokers die in the integration tests."""

from __future__ import annotations

from typing import Any

import pytest
from kafka.errors import (  # type: ignore[import-untyped]
    ClusterAuthorizationFailedError,
    KafkaConnectionError,
    TopicAlreadyExistsError,
)

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet import kafka_admin
from blockhouse.fleet.kafka_admin import KafkaFleet

ANSWER = {"brokers": [{"broker_id": 1, "rack": "a", "is_fenced": False}]}


class Client:
    """Raises what is left of `errors`, one at a call, then answers; counts the connections made of it."""

    def __init__(self, *errors: Exception) -> None:
        self.errors = list(errors)
        self.made = self.closed = 0

    def connect(self, _: KafkaCluster) -> Client:
        self.made += 1
        return self

    def close(self) -> None:
        self.closed += 1

    def describe_cluster(self) -> dict[str, Any]:
        if self.errors:
            raise self.errors.pop(0)
        return ANSWER

    def create_topics(self, _: dict[str, Any]) -> None:
        raise self.errors.pop(0)


@pytest.fixture
def fleet_of(monkeypatch: pytest.MonkeyPatch) -> Any:
    def made(client: Client) -> KafkaFleet:
        monkeypatch.setattr(kafka_admin, "_connect", client.connect)
        monkeypatch.setattr(kafka_admin, "RETRY_WAIT", 0.0)
        return KafkaFleet(KafkaCluster(name="dc1", bootstrap_servers="kafka-1:9092,kafka-2:9092"))

    return made


def test_a_new_connection_may_meet_the_dead_broker_too(fleet_of: Any) -> None:
    client = Client(*[KafkaConnectionError("111 ECONNREFUSED")] * 5)

    assert list(fleet_of(client).brokers()) == [1]
    assert (client.made, client.closed) == (6, 5)


def test_a_cluster_that_never_answers_is_named(fleet_of: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_admin, "PATIENCE", 0.0)
    client = Client(KafkaConnectionError("111 ECONNREFUSED"), KafkaConnectionError("asked once too often"))

    with pytest.raises(Retryable, match="cluster dc1 at kafka-1:9092,kafka-2:9092 did not answer describe_cluster"):
        fleet_of(client).brokers()
    assert (client.made, client.closed) == (1, 1)


def test_a_refusal_is_final(fleet_of: Any) -> None:
    client = Client(ClusterAuthorizationFailedError("not you"), ClusterAuthorizationFailedError("asked again"))

    with pytest.raises(Permanent, match="refused describe_cluster"):
        fleet_of(client).brokers()
    assert len(client.errors) == 1


def test_what_somebody_else_did_already_is_an_answer(fleet_of: Any) -> None:
    client = Client(TopicAlreadyExistsError("orders"))

    fleet_of(client).create_topic("orders", 1, 1, {})
    assert client.closed == 0
