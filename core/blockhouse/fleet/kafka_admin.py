"""A live Kafka cluster as a `Fleet`: answers of the admin client become values of `fleet.model`, and back.

It never decides what to ask for, and never keeps what it was answered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from kafka import TopicPartition as ClientPartition  # type: ignore[import-untyped]
from kafka.errors import (  # type: ignore[import-untyped]
    ClusterAuthorizationFailedError,
    InvalidPartitionsError,
    KafkaError,
    NoReassignmentInProgressError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent
from blockhouse.fleet import kafka_denials as denials
from blockhouse.fleet import kafka_settings as settings
from blockhouse.fleet.kafka_client import KafkaRequests
from blockhouse.fleet.model import Move, PartitionState, ReplicaLog, Setting, SettingSource, Storage
from blockhouse.placement.model import Broker, ReplicaSet, TopicPartition

PREFERRED = 0


class KafkaFleet:
    """One cluster as a `Fleet`. A context manager; connects on first use and again after a failure."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._requests = KafkaRequests(cluster)
        self._ask = self._requests.ask

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections; safe to call again."""
        self._requests.close()

    def cluster_id(self) -> str:
        """The id that the cluster gave itself: the same by whatever address it is reached."""
        return str(self._ask("describe_cluster")["cluster_id"])

    def brokers(self) -> dict[int, Broker]:
        """The brokers that are alive, by id, ascending. Raises as every request: Retryable or Permanent."""
        found = self._ask("describe_cluster")["brokers"]
        alive = [broker for broker in found if not broker.get("is_fenced")]
        return {b["broker_id"]: Broker(b["broker_id"], b["rack"] or "") for b in sorted(alive, key=_broker_id)}

    def hosts(self) -> dict[int, str]:
        """The host that each broker gives its clients."""
        return {broker["broker_id"]: str(broker["host"]) for broker in self._ask("describe_cluster")["brokers"]}

    def topic_ids(self) -> dict[str, str]:
        """The id of every topic: another one under the same name has another id."""
        return {topic["name"]: str(topic["topic_id"]) for topic in self._ask("describe_topics")}

    def partitions(self, topics: Sequence[str] | None = None) -> dict[TopicPartition, PartitionState]:
        """Replicas, leader (None without one) and replicas in sync of every partition, or of those of `topics`."""
        return {
            TopicPartition(topic["name"], partition["partition_index"]): PartitionState(
                replicas=tuple(partition["replica_nodes"]),
                leader=partition["leader_id"] if partition["leader_id"] >= 0 else None,
                in_sync=frozenset(partition["isr_nodes"]),
            )
            for topic in self._ask("describe_topics", *([] if topics is None else [list(topics)]))
            for partition in topic["partitions"]
        }

    def storage(self) -> Storage:
        """Free bytes by broker where all of them answer it, bytes by partition, and the log of each replica."""
        free: dict[int, float] = {}
        replicas: dict[tuple[TopicPartition, int], ReplicaLog] = {}
        for answer in self._ask("describe_log_dirs", brokers=list(self.brokers())):
            if not answer["log_dirs"]:  # the client passes over the error of the answer; every broker has a directory
                raise self._denied("describe_log_dirs", f"broker {answer['broker']} shows none")
            directories = [found for found in answer["log_dirs"] if not found["error_code"]]
            usable = [found.get("usable_bytes", -1) for found in directories]
            if usable and min(usable) >= 0:
                free[answer["broker"]] = float(sum(usable))
            for directory in directories:
                for topic in directory["topics"]:
                    for partition in topic["partitions"]:
                        key = TopicPartition(topic["name"], partition["partition_index"])
                        log = ReplicaLog(float(partition["partition_size"]), partition["offset_lag"])
                        # While a log moves to another directory of its broker there are two: the larger is the whole.
                        replicas[key, answer["broker"]] = max(
                            log, replicas.get((key, answer["broker"]), log), key=lambda found: found.size
                        )
        sizes: dict[TopicPartition, float] = defaultdict(float)
        for (key, _), log in replicas.items():
            sizes[key] = max(sizes[key], log.size)
        return Storage(free, dict(sizes), replicas)

    def moves(self) -> dict[TopicPartition, Move]:
        """The reassignments that run now, those of others included."""
        return {
            TopicPartition(key.topic, key.partition): Move(
                replicas=tuple(state["replicas"]),
                adding=frozenset(state["adding_replicas"]),
                removing=frozenset(state["removing_replicas"]),
            )
            for key, state in self._ask("list_partition_reassignments").items()
        }

    def reassign(self, targets: Mapping[TopicPartition, ReplicaSet | None]) -> dict[TopicPartition, str]:
        """Start them, or cancel those of None; returns why partitions were refused. Raises Retryable if one may
        pass."""
        requested = {ClientPartition(*key): replicas for key, replicas in targets.items()}
        answers = self._ask("alter_partition_reassignments", requested)
        refused = {TopicPartition(*key): error for key, error in answers.items() if error is not None}
        passing = next((error for error in refused.values() if error.retriable), None)
        if passing is not None:
            raise self._requests.unanswered(passing.__name__, "alter_partition_reassignments")
        return {key: _reason(error) for key, error in refused.items() if error is not NoReassignmentInProgressError}

    def elect_preferred_leaders(self, partitions: Collection[TopicPartition]) -> None:
        """Ask for it; where it is not possible nothing happens. Raises Permanent when it is not allowed."""
        topics: dict[str, list[int]] = defaultdict(list)
        for key in partitions:
            topics[key.topic].append(key.partition)
        answer = self._ask("elect_leaders", PREFERRED, dict(topics), raise_errors=False)
        if answer.error_code == ClusterAuthorizationFailedError.errno:
            raise self._denied("elect_leaders", ClusterAuthorizationFailedError.description)

    def require_visible(self, topics: Collection[str]) -> None:
        """Raises Permanent when the topics are not gone but hidden: Kafka does not show what may not be described."""
        hidden = settings.hidden(self._requests, topics) if topics else []
        if hidden:
            words = f"topic {', '.join(hidden[:3])}"
            right = denials.right_of("describe_topics", hidden)
            raise self._requests.refused("it may not be described", words, reason=settings.UNREADABLE, right=right)

    def _denied(self, request: str, words: str) -> Permanent:
        return self._requests.refused(
            words, request, reason=ClusterAuthorizationFailedError.__name__, right=denials.right_of(request)
        )

    def topic_configs(
        self, topics: Collection[str], unread: list[str] | None = None, only: Collection[str] | None = None
    ) -> dict[str, dict[str, str]]:
        """What each of these existing topics has set for itself, as the broker spells it, of `only` those settings;
        defaults are left out.

        Raises Permanent where settings may not be read; or adds those topics to `unread`.
        """
        return {
            topic: {name: setting.value for name, setting in found.items() if setting.source is SettingSource.TOPIC}
            for topic, found in settings.describe(self._requests, settings.TOPIC, topics, only, unread).items()
        }

    def topic_settings(self, topics: Collection[str], only: Collection[str]) -> dict[str, dict[str, Setting]]:
        """The settings named in `only`, by topic and name."""
        return settings.describe(self._requests, settings.TOPIC, topics, only)

    def broker_settings(self, brokers: Collection[int], only: Collection[str]) -> dict[int, dict[str, Setting]]:
        """The same by broker id."""
        found = settings.describe(self._requests, settings.BROKER, map(str, brokers), only)
        return {int(broker): given for broker, given in found.items()}

    def change_topic(self, topic: str, values: Mapping[str, str], removed: Collection[str] = ()) -> None:
        """Set `values` and reset `removed` of a topic, in one request; other settings stay."""
        settings.change(self._requests, settings.TOPIC, topic, values, removed)

    def change_broker(self, broker: int, values: Mapping[str, str], removed: Collection[str] = ()) -> None:
        """The same of a broker."""
        settings.change(self._requests, settings.BROKER, str(broker), values, removed)

    def create_topic(
        self,
        topic: str,
        partitions: int,
        replication: int,
        configs: Mapping[str, str],
        sets: Sequence[ReplicaSet] | None = None,
    ) -> None:
        """Make a topic, its replicas as in `sets`, or as the brokers choose. One that exists is left alone."""
        options: dict[str, Any] = {"configs": dict(configs)}
        if sets is None:
            options |= {"num_partitions": partitions, "replication_factor": replication}
        else:
            options["assignments"] = {number: list(replicas) for number, replicas in enumerate(sets)}
        self._ask("create_topics", {topic: options}, allowed=TopicAlreadyExistsError)

    def add_partitions(self, topic: str, total: int, sets: Sequence[ReplicaSet] | None = None) -> None:
        """Let a topic have `total` partitions; `sets` are those of the new ones. One that has them is left alone."""
        request: Any = total if sets is None else {"count": total, "assignments": [list(r) for r in sets]}
        self._ask("create_partitions", {topic: request}, allowed=InvalidPartitionsError)

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and all its messages. One that does not exist is left alone."""
        self._ask("delete_topics", [topic], allowed=UnknownTopicOrPartitionError)


def _broker_id(broker: Mapping[str, Any]) -> int:
    return int(broker["broker_id"])


def _reason(error: type[KafkaError]) -> str:
    return str(getattr(error, "description", None) or error.__name__)
