"""One Kafka cluster is read once for all shards, and changed only for those that ask."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import pytest

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.model import PartitionState
from blockhouse.fleet.topics import ClusterSeen, CreateTopic, DesiredTopic, SetConfig, TopicStep
from blockhouse.placement.model import Broker, TopicPartition
from blockhouse_operator.adapters.fence import Fence, LeadershipLost, OpenFence
from blockhouse_operator.reconcile import cluster_topics
from blockhouse_operator.reconcile.cluster_topics import FORGOTTEN_SECONDS, LOOK_AGAIN_SECONDS, ClusterTopics
from blockhouse_operator.reconcile.services import Troubles

CLUSTER = KafkaCluster(name="a", bootstrap_servers="kafka-a:9092")
BROKERS = {number: Broker(number, f"rack-{number}") for number in (1, 2, 3, 4)}
SHARDS = 200


@dataclass
class Cluster:
    """A Kafka cluster in memory, in place of the adapter; `observed` are the topics of each observation,
    `whole` counts those in which every topic was read."""

    topics: dict[str, list[tuple[int, ...]]] = field(default_factory=dict)
    configs: dict[str, dict[str, str]] = field(default_factory=dict)
    observed: list[list[str]] = field(default_factory=list)
    whole: int = 0
    steps: list[TopicStep] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    unread: set[str] = field(default_factory=set)
    silent: bool = False
    answers: threading.Event = field(default_factory=threading.Event)
    now: float = 0.0

    def observe(
        self, cluster: KafkaCluster, topics: Sequence[str], known: ClusterSeen | None, settings: Collection[str]
    ) -> ClusterSeen:
        assert self.answers.wait(60)
        self.observed.append(list(topics))
        self.whole += known is None
        if self.silent:
            raise Retryable("no answer")
        if self.unread & set(topics) and len(topics) == 1:
            raise Permanent(f"settings of topic {topics[0]} may not be read", reason="Refused")
        partitions = {
            TopicPartition(name, number): PartitionState(replicas, replicas[0], frozenset(replicas))
            for name, sets in self.topics.items()
            for number, replicas in enumerate(sets)
            if known is None or name in topics
        }
        if known is not None:
            partitions |= {key: state for key, state in known.partitions.items() if key.topic not in topics}
        read = {
            name: {key: value for key, value in self.configs.get(name, {}).items() if key in settings}
            for name in topics
            if name in self.topics and name not in self.unread
        }
        return ClusterSeen(BROKERS, partitions, read, frozenset(self.unread & set(topics)))

    def carry_out(self, cluster: KafkaCluster, steps: Iterable[TopicStep], fence: Fence) -> dict[str, Permanent]:
        refused: dict[str, Permanent] = {}
        for step in steps:
            fence.check()
            if step.topic in self.refused:
                refused[step.topic] = Permanent(f"{step.topic}: no", reason="Refused")
                continue
            self.steps.append(step)
            match step:
                case CreateTopic(topic=topic, sets=sets):
                    self.topics[topic] = list(sets or ())
                case SetConfig(topic=topic, config=config):
                    self.configs[topic] = dict(config)
                case _:
                    raise AssertionError(f"not played: {step}")
        return refused


@pytest.fixture
def kafka(monkeypatch: pytest.MonkeyPatch) -> Cluster:
    found = Cluster()
    found.answers.set()
    monkeypatch.setattr(cluster_topics, "observe_topics", found.observe)
    monkeypatch.setattr(cluster_topics, "carry_out", found.carry_out)
    return found


def of(kafka: Cluster, fence: Any = None) -> ClusterTopics:
    class Services:
        troubles = Troubles(lambda: kafka.now)
        dry_run = False

        def clock(self) -> float:
            return kafka.now

    services: Any = Services()
    services.fence = fence or OpenFence()
    return ClusterTopics(services, CLUSTER)


def topic(number: int, config: Mapping[str, str] | None = None) -> DesiredTopic:
    return DesiredTopic(f"events-{number}", 2, 2, config or {})


def existing(kafka: Cluster) -> None:
    kafka.topics = {f"events-{number}": [(1, 2), (2, 3)] for number in range(SHARDS)}


async def states(topics: ClusterTopics, *numbers: int) -> list[str]:
    found = await asyncio.gather(*(topics.status(topic(number)) for number in numbers))
    return [status.state if status else "" for status in found]


async def test_shards_that_ask_together_share_one_observation_and_so_do_those_of_the_next_minute(
    kafka: Cluster,
) -> None:
    existing(kafka)
    topics = of(kafka)

    assert await states(topics, *range(cluster_topics.TOGETHER)) == ["AsSpecified"] * cluster_topics.TOGETHER
    assert len(kafka.observed) == 1
    for number in range(cluster_topics.TOGETHER):
        kafka.now += 0.5
        assert await states(topics, number) == ["AsSpecified"]
    assert len(kafka.observed) == 1

    kafka.now += LOOK_AGAIN_SECONDS
    for number in range(cluster_topics.TOGETHER):
        assert await states(topics, number) == ["AsSpecified"]
    assert len(kafka.observed) == 2


async def test_many_shards_a_minute_cost_one_observation_a_minute(kafka: Cluster) -> None:
    """Each shard asks once a minute; for the first time their settings are not read along yet."""
    existing(kafka)
    topics = of(kafka)
    await states(topics, *range(SHARDS))
    kafka.observed.clear()

    for _ in range(5):
        for number in range(SHARDS):
            kafka.now += LOOK_AGAIN_SECONDS / SHARDS
            assert await states(topics, number) == ["AsSpecified"]

    assert len(kafka.observed) <= 6


async def test_partitions_that_are_taken_back_while_the_cluster_is_silent_are_not_added(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_topics, "PATIENCE_SECONDS", 0.01)
    existing(kafka)
    topics = of(kafka)
    kafka.answers.clear()
    assert await topics.status(replace(topic(0), partitions=8)) is None
    assert await topics.status(topic(0)) is None

    kafka.answers.set()
    found = None
    while found is None:
        found = await topics.status(topic(0))

    assert (found.state, found.partitions) == ("AsSpecified", 2)
    assert kafka.steps == []


async def test_missing_topics_are_created_together_and_spread_over_the_brokers(kafka: Cluster) -> None:
    assert await states(of(kafka), 0, 1) == ["AsSpecified"] * 2

    leaders = [replicas[0] for sets in kafka.topics.values() for replicas in sets]
    assert sorted(leaders) == [1, 2, 3, 4]
    assert len(kafka.observed) == 2


async def test_shards_that_are_created_one_after_another_do_not_have_the_whole_cluster_read_each(
    kafka: Cluster,
) -> None:
    topics = of(kafka)
    for number in range(SHARDS):
        assert await states(topics, number) == ["AsSpecified"]

    assert kafka.whole == 1
    leaders = [replicas[0] for sets in kafka.topics.values() for replicas in sets]
    assert max(map(leaders.count, BROKERS)) - min(map(leaders.count, BROKERS)) <= 1, "placed with each other in mind"


async def test_a_topic_of_a_shard_that_no_longer_asks_is_neither_made_again_nor_read_for_long(kafka: Cluster) -> None:
    topics = of(kafka)
    await states(topics, 0)
    kafka.topics.clear()
    kafka.now += LOOK_AGAIN_SECONDS

    await states(topics, 1)
    assert list(kafka.topics) == ["events-1"]

    kafka.now += FORGOTTEN_SECONDS
    await states(topics, 1)
    assert kafka.observed[-1] == ["events-1"]


async def test_another_spec_is_carried_out_at_once(kafka: Cluster) -> None:
    topics = of(kafka)
    await states(topics, 0)

    found = await topics.status(topic(0, {"retention.ms": "7"}))

    assert found is not None
    assert (found.state, kafka.configs) == ("AsSpecified", {"events-0": {"retention.ms": "7"}})


@pytest.mark.parametrize("refused", ["refused", "unread"])
async def test_a_topic_that_is_refused_does_not_keep_others_from_theirs(kafka: Cluster, refused: str) -> None:
    if refused == "unread":
        existing(kafka)
    getattr(kafka, refused).add("events-0")

    assert await states(of(kafka), 0, 1) == ["TopicFailed", "AsSpecified"]


async def test_a_fault_is_read_again_after_seconds_for_a_person_may_be_repairing_it(kafka: Cluster) -> None:
    kafka.topics = {"events-0": [(1,), (2,)]}
    topics = of(kafka)
    assert await states(topics, 0) == ["TopicDrift"]
    kafka.topics = {"events-0": [(1, 2), (2, 3)]}

    assert await states(topics, 0) == ["TopicDrift"]
    kafka.now += cluster_topics.TROUBLE_LASTS_SECONDS
    assert await states(topics, 0) == ["AsSpecified"]


async def test_a_slow_cluster_keeps_no_reconcile_and_its_answer_is_there_at_the_next(
    kafka: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cluster_topics, "PATIENCE_SECONDS", 0.0)
    kafka.answers.clear()
    kafka.refused.add("events-0")
    topics = of(kafka)
    assert await states(topics, 0) == [""]

    kafka.answers.set()
    monkeypatch.setattr(cluster_topics, "PATIENCE_SECONDS", 60.0)
    assert await states(topics, 1) == ["AsSpecified"]
    assert await states(topics, 0) == ["TopicFailed"]


async def test_a_cluster_that_does_not_answer_is_asked_once_for_all(kafka: Cluster) -> None:
    kafka.silent = True

    assert await states(of(kafka), *range(SHARDS)) == ["KafkaUnreachable"] * SHARDS
    assert len(kafka.observed) == 1


async def test_a_lost_lease_reaches_every_reconcile_that_waits(kafka: Cluster) -> None:
    class Lost(OpenFence):
        def check(self) -> None:
            raise LeadershipLost("gone")

    topics = of(kafka, Lost())

    found = await asyncio.gather(topics.status(topic(0)), topics.status(topic(1)), return_exceptions=True)
    assert [type(error) for error in found] == [LeadershipLost] * 2
