"""One snapshot of a live cluster for the `sampled` source: metadata, offsets, log directories and committed offsets.

Each broker is asked by itself, one after the other, so that one that is silent costs only what it leads. It must never
read a message or ask for more than a snapshot needs: tens of thousands of partitions are read every minute.
"""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any

from kafka import TopicPartition as ClientPartition  # type: ignore[import-untyped]
from kafka.admin import OffsetSpec  # type: ignore[import-untyped]

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import BlockhouseError, Permanent, Retryable
from blockhouse.fleet import kafka_settings as settings
from blockhouse.fleet.kafka_client import KafkaRequests
from blockhouse.load.model import Problem, ProblemKind
from blockhouse.load.sampling import PartitionLook, Snapshot
from blockhouse.placement.model import TopicPartition

PATIENCE = 2.0  # seconds: a broker that does not answer now is asked again in the next look
REQUEST_TIMEOUT_MS = 10_000
REREAD_SETTINGS = 60  # looks after which topics' settings are read again
TOPICS_A_REQUEST = 1000
POLICY, TIERED = "cleanup.policy", "remote.storage.enable"


class ClusterLooks:
    """Samples one cluster. `groups` adds what consumer groups have read, which costs a request a group."""

    def __init__(self, cluster: KafkaCluster, *, groups: bool = True) -> None:
        # Any broker can describe the cluster, so that is asked until one does; of its own a broker is asked twice.
        self._any = KafkaRequests(cluster, request_timeout_ms=REQUEST_TIMEOUT_MS)
        self._one = KafkaRequests(cluster, patience=PATIENCE, request_timeout_ms=REQUEST_TIMEOUT_MS, per_broker=True)
        self._groups = groups
        self._odd: dict[str, bool] = {}
        self._looks = 0

    def close(self) -> None:
        """Close the connections; the next look opens new ones. Never raises."""
        self._any.close()
        self._one.close()

    def look(self, ask_start: Callable[[Iterable[TopicPartition]], Sequence[TopicPartition]]) -> Snapshot:
        """What the cluster reports now. Raises Retryable or Permanent only when it does not even describe itself."""
        problems: list[Problem] = []
        described = self._any.ask("describe_cluster")
        topics = self._any.ask("describe_topics")
        alive = sorted(broker["broker_id"] for broker in described["brokers"] if not broker.get("is_fenced"))
        led = _by_leader(topics, problems)
        at, clock = time.time(), time.monotonic()
        ends = self._offsets(led, OffsetSpec.LATEST, problems)
        views = dict(_views(topics, ends))
        chosen = set(ask_start(views))
        asked = {broker: [key for key in keys if key in chosen] for broker, keys in led.items()}
        starts = self._offsets(asked, OffsetSpec.EARLIEST, problems)
        there = {topic["name"]: [found["partition_index"] for found in topic["partitions"]] for topic in topics}
        sizes, sized = self._sizes(alive, there, problems)
        return Snapshot(
            cluster_id=str(described["cluster_id"]),
            at=at,
            clock=clock,
            partitions=views,
            starts=starts,
            sizes=sizes,
            sized=sized,
            topic_ids={topic["name"]: str(topic["topic_id"]) for topic in topics},
            arriving=self._arriving(problems),
            odd=self._odd_topics([topic["name"] for topic in topics], problems),
            committed=self._committed(problems) if self._groups else {},
            problems=tuple(problems),
        )

    def _offsets(
        self, led: Mapping[int, Sequence[TopicPartition]], spec: OffsetSpec, problems: list[Problem]
    ) -> dict[TopicPartition, int]:
        found: dict[TopicPartition, int] = {}
        for broker, keys in sorted(led.items()):
            if not keys:
                continue
            try:
                found |= self._led_offsets(broker, keys, spec)
                others = [key for key in keys if key not in found]
                if others:
                    found |= self._offsets_of(others, spec)
            except BlockhouseError as error:
                missing = sum(key not in found for key in keys)
                problems.append(_unanswered(f"broker {broker}", error, f"no offsets of {missing} partitions it leads"))
        return found

    def _led_offsets(self, broker: int, keys: Sequence[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        """Offsets of those partitions that the broker still leads, as it did when the cluster was described."""
        answer = self._one.ask("list_led_offsets", broker, {ClientPartition(*key): spec for key in keys})
        return {TopicPartition(key.topic, key.partition): offset for key, offset in answer.items()}

    def _offsets_of(self, keys: Sequence[TopicPartition], spec: OffsetSpec) -> dict[TopicPartition, int]:
        """Offsets of these partitions. One that is refused costs only itself: the rest is halved."""
        try:
            requested = {ClientPartition(*key): spec for key in keys}
            answer = self._one.ask("list_partition_offsets", requested, timeout_ms=PATIENCE * 1000)
        except Permanent:
            if len(keys) == 1:
                return {}
            middle = len(keys) // 2
            return self._offsets_of(keys[:middle], spec) | self._offsets_of(keys[middle:], spec)
        return {TopicPartition(key.topic, key.partition): found.offset for key, found in answer.items()}

    def _sizes(
        self, brokers: Collection[int], partitions: Mapping[str, Sequence[int]], problems: list[Problem]
    ) -> tuple[dict[int, dict[TopicPartition, float]], dict[int, float]]:
        sizes: dict[int, dict[TopicPartition, float]] = {}
        sized: dict[int, float] = {}
        for broker in brokers:
            clock = time.monotonic()
            try:
                (answer,) = self._one.ask("describe_log_dirs", partitions, brokers=[broker])
            except BlockhouseError as error:
                problems.append(_unanswered(f"broker {broker}", error, "no sizes of its replicas"))
                continue
            sizes[broker], sized[broker] = _replica_sizes(answer), clock
        return sizes, sized

    def _arriving(self, problems: list[Problem]) -> dict[TopicPartition, frozenset[int]]:
        try:
            moves = self._one.ask("list_partition_reassignments")
        except BlockhouseError as error:
            problems.append(_unanswered("reassignments", error, "what is moved counts as written by clients"))
            return {}
        return {TopicPartition(*key): frozenset(state["adding_replicas"]) for key, state in moves.items()}

    def _odd_topics(self, topics: Sequence[str], problems: list[Problem]) -> frozenset[str]:
        """Compacted and tiered topics: the bytes on disk divided by the offsets are not the size of their records."""
        if self._looks % REREAD_SETTINGS == 0:
            self._odd.clear()
        self._looks += 1
        try:
            unknown, denied = [topic for topic in topics if topic not in self._odd], list[str]()
            for begin in range(0, len(unknown), TOPICS_A_REQUEST):
                some = unknown[begin : begin + TOPICS_A_REQUEST]
                found = settings.describe(self._one, settings.TOPIC, some, (POLICY, TIERED), denied)
                for topic in some:
                    given = {name: setting.value for name, setting in found.get(topic, {}).items()}
                    self._odd[topic] = "compact" in given.get(POLICY, "") or given.get(TIERED) == "true"
        except BlockhouseError as error:
            problems.append(_unanswered("settings of topics", error, "compacted ones are taken for others"))
        return frozenset(topic for topic in topics if self._odd.get(topic))

    def _committed(self, problems: list[Problem]) -> dict[str, dict[TopicPartition, int]]:
        try:
            groups = [found["group_id"] for found in self._one.ask("list_groups")]
            answer = self._one.ask("list_group_offsets", groups) if groups else {}
        except BlockhouseError as error:
            problems.append(_unanswered("consumer groups", error, "what consumers read is missing in tx"))
            return {}
        return {
            group: {TopicPartition(key.topic, key.partition): found.offset for key, found in offsets.items()}
            for group, offsets in answer.items()
        }


def _by_leader(topics: Iterable[Mapping[str, Any]], problems: list[Problem]) -> dict[int, list[TopicPartition]]:
    led: dict[int, list[TopicPartition]] = defaultdict(list)
    for topic in topics:
        name, leaderless = topic["name"], 0
        for partition in topic["partitions"]:
            if partition["leader_id"] >= 0 and not _failed(partition["error_code"]):
                led[partition["leader_id"]].append(TopicPartition(name, partition["partition_index"]))
            else:
                leaderless += 1
        if leaderless:
            text = f"{leaderless} partitions have no leader: no rate, and no one can write to them"
            problems.append(Problem(ProblemKind.NOT_LED, f"topic {name}", text))
    return led


def _failed(code: int) -> bool:
    return code not in (0, 9)  # REPLICA_NOT_AVAILABLE: a follower is unavailable, the leader answers


def _views(
    topics: Iterable[Mapping[str, Any]], ends: Mapping[TopicPartition, int]
) -> Iterable[tuple[TopicPartition, PartitionLook]]:
    for topic in topics:
        name = topic["name"]
        for partition in topic["partitions"]:
            key = TopicPartition(name, partition["partition_index"])
            end = ends.get(key)
            if end is not None:
                yield (
                    key,
                    PartitionLook(
                        end,
                        partition["leader_id"],
                        partition["leader_epoch"],
                        tuple(partition["replica_nodes"]),
                        tuple(partition["isr_nodes"]),
                    ),
                )


def _replica_sizes(answer: Mapping[str, Any]) -> dict[TopicPartition, float]:
    """Bytes of each replica of one broker; of a log that moves between its directories, the larger."""
    sizes: dict[TopicPartition, float] = {}
    for directory in answer["log_dirs"]:
        if directory["error_code"]:
            continue
        for topic in directory["topics"]:
            for partition in topic["partitions"]:
                key = TopicPartition(topic["name"], partition["partition_index"])
                sizes[key] = max(sizes.get(key, 0.0), float(partition["partition_size"]))
    return sizes


def _unanswered(subject: str, error: BlockhouseError, effect: str) -> Problem:
    kind = ProblemKind.UNAVAILABLE if isinstance(error, Retryable) else ProblemKind.UNKNOWN
    return Problem(kind, subject, f"{effect}: {error}")
