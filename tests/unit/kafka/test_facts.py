"""Which client of a cluster is asked: another one after a question that timed out."""

from __future__ import annotations

from concurrent.futures import Future
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse_aggregator.kafka import connecting
from blockhouse_aggregator.kafka.facts import ClusterFacts


class Client:
    """Answers what its class has been given, and counts itself."""

    made = 0
    answers: list[Any]

    def __init__(self, config: dict[str, Any]) -> None:
        Client.made += 1

    def describe_cluster(self, *, request_timeout: float) -> Future[Any]:
        future: Future[Any] = Future()
        answer = self.answers.pop(0)
        future.set_exception(answer) if isinstance(answer, Exception) else future.set_result(answer)
        return future

    def poll(self, timeout: float) -> None:
        pass


class Described:
    cluster_id = "one"


@pytest.mark.parametrize(
    ("failure", "clients"),
    [
        (KafkaException(KafkaError(KafkaError._TIMED_OUT)), 2),
        (TimeoutError(), 2),
        (KafkaException(KafkaError(KafkaError._TRANSPORT)), 1),
    ],
)
def test_a_client_whose_request_timed_out_is_replaced(
    monkeypatch: pytest.MonkeyPatch, failure: Exception, clients: int
) -> None:
    monkeypatch.setattr(connecting, "AdminClient", Client)
    monkeypatch.setattr(Client, "made", 0)
    monkeypatch.setattr(Client, "answers", [failure, Described()], raising=False)
    facts = ClusterFacts(KafkaCluster(name="a", bootstrap_servers="localhost:1"))
    with pytest.raises(Retryable):
        facts.cluster_id()
    assert facts.cluster_id() == "one"
    assert Client.made == clients
