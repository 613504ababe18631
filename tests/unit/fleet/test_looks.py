"""A snapshot of a cluster: which requests it takes, and what a partition costs that is not where it was described."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.load import looks
from blockhouse.load.sampling import Snapshot
from blockhouse.placement.model import TopicPartition

MOVED, REFUSED = TopicPartition("t", 1), TopicPartition("t", 2)


class Broker:
    """Broker 1 was described as the leader of all partitions; one is led by another by now, one may not be read."""

    def __init__(self, *_: object, **__: object) -> None:
        self.asked: list[tuple[str, tuple[Any, ...]]] = []

    def ask(self, request: str, *arguments: Any, **_: Any) -> Any:
        self.asked.append((request, arguments))
        return getattr(self, request, lambda *_: {})(*arguments)

    def describe_cluster(self) -> Mapping[str, Any]:
        return {"cluster_id": "c", "brokers": [{"broker_id": 1}]}

    def describe_topics(self) -> list[Mapping[str, Any]]:
        partition = {"leader_id": 1, "leader_epoch": 0, "replica_nodes": [1], "isr_nodes": [1], "error_code": 0}
        return [{"name": "t", "topic_id": "i", "partitions": [{**partition, "partition_index": n} for n in range(4)]}]

    def list_led_offsets(self, broker: int, keys: Iterable[Any]) -> dict[Any, int]:
        assert broker == 1
        return {key: 10 + key.partition for key in keys if (key.topic, key.partition) not in (MOVED, REFUSED)}

    def list_partition_offsets(self, keys: Iterable[Any]) -> dict[Any, Any]:
        if any((key.topic, key.partition) == REFUSED for key in keys):
            raise Permanent("may not be read", reason="TopicAuthorizationFailedError")
        return {key: SimpleNamespace(offset=10 + key.partition) for key in keys}

    def describe_log_dirs(self, partitions: Mapping[str, list[int]]) -> list[Mapping[str, Any]]:
        found = [{"partition_index": n, "partition_size": 100 * n} for n in partitions["t"]]
        return [{"broker": 1, "log_dirs": [{"error_code": 0, "topics": [{"name": "t", "partitions": found}]}]}]

    def list_groups(self) -> list[Mapping[str, Any]]:
        return []

    def close(self) -> None:
        pass


class Forgetful(Broker):
    """Knows nothing of the others: their topic was deleted."""

    def list_partition_offsets(self, keys: Iterable[Any]) -> dict[Any, Any]:
        raise Retryable("no such partition")


@pytest.fixture(params=[Broker])
def snapshot(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Snapshot:
    monkeypatch.setattr(looks, "KafkaRequests", request.param)
    monkeypatch.setattr(looks.settings, "describe", lambda *_: {})
    return looks.ClusterLooks(KafkaCluster(name="c", bootstrap_servers="a:1")).look(lambda _: [])


def test_a_partition_that_another_broker_leads_by_now_is_asked_for_again(snapshot: Snapshot) -> None:
    assert snapshot.partitions[MOVED].end == 11


def test_a_partition_that_is_refused_costs_only_itself(snapshot: Snapshot) -> None:
    assert {key.partition for key in snapshot.partitions} == {0, 1, 3}
    assert snapshot.problems == ()


def test_sizes_are_those_of_the_partitions_that_were_described(snapshot: Snapshot) -> None:
    assert snapshot.sizes == {1: {TopicPartition("t", n): 100.0 * n for n in range(4)}}


@pytest.mark.parametrize("snapshot", [Forgetful], indirect=True)
def test_what_is_gone_costs_what_its_leader_answered_nothing(snapshot: Snapshot) -> None:
    assert {key.partition for key in snapshot.partitions} == {0, 3}
    (problem,) = snapshot.problems
    assert "no offsets of 2 partitions" in problem.text
