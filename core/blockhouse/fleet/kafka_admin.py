"""A live Kafka cluster through kafka-python's admin client: the only module that imports it.

librdkafka, and so confluent-kafka, has neither the reassignment calls nor log directories. The Java client has, but
would need a JVM and jars that PySpark does not bring; kafka-python is one small package without dependencies and has
them all. It is used for nothing else: data and group offsets stay with confluent-kafka.
"""

from __future__ import annotations

import logging
import ssl
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from kafka import KafkaAdminClient  # type: ignore[import-untyped]
from kafka import TopicPartition as ClientPartition
from kafka.admin import ConfigResource, ConfigResourceType  # type: ignore[import-untyped]
from kafka.errors import (  # type: ignore[import-untyped]
    InvalidPartitionsError,
    KafkaError,
    NoReassignmentInProgressError,
    TopicAlreadyExistsError,
    UnknownTopicOrPartitionError,
)
from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_fixed

from blockhouse.config.endpoints import KafkaCluster, Tls
from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.model import PartitionState, Storage
from blockhouse.placement.model import Broker, ReplicaSet, TopicPartition

REQUEST_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_MS = 15_000
PATIENCE = 15.0  # seconds: a broker that has died is in the cluster's answers for a session of 9 s
RETRY_WAIT = 0.1
PREFERRED = 0

logging.getLogger("kafka").setLevel(logging.ERROR)  # its debug output holds passwords, its warnings are our retries


class KafkaFleet:
    """One cluster as a `Fleet`. A context manager; connects on first use and again after a failure."""

    def __init__(self, cluster: KafkaCluster) -> None:
        self._cluster = cluster
        self._client: Any = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def brokers(self) -> dict[int, Broker]:
        found = self._ask("describe_cluster")["brokers"]
        alive = [broker for broker in found if not broker.get("is_fenced")]
        return {b["broker_id"]: Broker(b["broker_id"], b["rack"] or "") for b in sorted(alive, key=_broker_id)}

    def partitions(self) -> dict[TopicPartition, PartitionState]:
        return {
            TopicPartition(topic["name"], partition["partition_index"]): PartitionState(
                replicas=tuple(partition["replica_nodes"]),
                leader=partition["leader_id"] if partition["leader_id"] >= 0 else None,
                in_sync=frozenset(partition["isr_nodes"]),
            )
            for topic in self._ask("describe_topics")
            for partition in topic["partitions"]
        }

    def storage(self) -> Storage:
        free: dict[int, float] = {}
        sizes: dict[TopicPartition, float] = defaultdict(float)
        for answer in self._ask("describe_log_dirs", brokers=list(self.brokers())):
            directories = [found for found in answer["log_dirs"] if not found["error_code"]]
            usable = [found.get("usable_bytes", -1) for found in directories]
            if usable and min(usable) >= 0:
                free[answer["broker"]] = float(sum(usable))
            for directory in directories:
                for topic in directory["topics"]:
                    for partition in topic["partitions"]:
                        key = TopicPartition(topic["name"], partition["partition_index"])
                        sizes[key] = max(sizes[key], float(partition["partition_size"]))
        return Storage(free, dict(sizes))

    def reassigning(self) -> dict[TopicPartition, ReplicaSet]:
        return {
            TopicPartition(key.topic, key.partition): tuple(
                id for id in state["replicas"] if id not in state["removing_replicas"]
            )
            for key, state in self._ask("list_partition_reassignments").items()
        }

    def reassign(self, targets: Mapping[TopicPartition, ReplicaSet | None]) -> dict[TopicPartition, str]:
        wanted = {ClientPartition(*key): replicas for key, replicas in targets.items()}
        answers = self._ask("alter_partition_reassignments", wanted)
        refused = {TopicPartition(*key): error for key, error in answers.items() if error is not None}
        passing = next((error for error in refused.values() if error.retriable), None)
        if passing is not None:
            raise self._retryable(passing, "alter_partition_reassignments")
        return {key: _reason(error) for key, error in refused.items() if error is not NoReassignmentInProgressError}

    def elect_preferred_leaders(self, partitions: Collection[TopicPartition]) -> None:
        topics: dict[str, list[int]] = defaultdict(list)
        for key in partitions:
            topics[key.topic].append(key.partition)
        self._ask("elect_leaders", PREFERRED, dict(topics), raise_errors=False)

    def topic_configs(self, topics: Collection[str]) -> dict[str, dict[str, str]]:
        """What each of these existing topics has set for itself, as the broker spells it; defaults are left out."""
        if not topics:
            return {}
        wanted = [ConfigResource(ConfigResourceType.TOPIC, topic) for topic in sorted(topics)]
        found = self._ask("describe_configs", wanted, config_filter="modified")["topic"]
        return {
            topic: {name: str(setting["value"]) for name, setting in settings.items()}
            for topic, settings in found.items()
        }

    def create_topic(
        self,
        topic: str,
        partitions: int,
        replication: int,
        configs: Mapping[str, str],
        sets: Sequence[ReplicaSet] | None = None,
    ) -> None:
        """Make a topic, its replicas where `sets` says or where the brokers choose. One that exists is left alone."""
        options: dict[str, Any] = {"configs": dict(configs)}
        if sets is None:
            options |= {"num_partitions": partitions, "replication_factor": replication}
        else:
            options["assignments"] = {number: list(replicas) for number, replicas in enumerate(sets)}
        self._ask("create_topics", {topic: options}, allowed=TopicAlreadyExistsError)

    def add_partitions(self, topic: str, total: int, sets: Sequence[ReplicaSet] | None = None) -> None:
        """Let a topic have `total` partitions; `sets` are those of the new ones. One that has them is left alone."""
        wanted: Any = total if sets is None else {"count": total, "assignments": [list(r) for r in sets]}
        self._ask("create_partitions", {topic: wanted}, allowed=InvalidPartitionsError)

    def set_topic_configs(self, topic: str, configs: Mapping[str, str]) -> None:
        """Set these settings of a topic; all its others stay."""
        self._ask("alter_configs", [ConfigResource(ConfigResourceType.TOPIC, topic, dict(configs))])

    def delete_topic(self, topic: str) -> None:
        """Delete a topic and all its messages. One that does not exist is left alone."""
        self._ask("delete_topics", [topic], allowed=UnknownTopicOrPartitionError)

    def _ask(self, request: str, *arguments: Any, allowed: type[KafkaError] | tuple[()] = (), **options: Any) -> Any:
        """One request, for `PATIENCE` seconds until a broker answers it. An `allowed` error is an answer too.

        Each attempt has a connection of its own: the client keeps asking a broker that has died, and a new one picks
        any of those the cluster still names, for as long as its session lasts also the dead.
        """
        attempts = Retrying(
            retry=retry_if_exception(lambda error: isinstance(error, KafkaError) and error.retriable),
            stop=stop_after_delay(PATIENCE),
            wait=wait_fixed(RETRY_WAIT),
            reraise=True,
        )
        try:
            return attempts(self._send, request, arguments, allowed, options)
        except KafkaError as error:
            refusal = self._retryable if error.retriable else self._permanent
            raise refusal(error, request) from error

    def _send(
        self,
        request: str,
        arguments: tuple[Any, ...],
        allowed: type[KafkaError] | tuple[()],
        options: Mapping[str, Any],
    ) -> Any:
        if self._client is None:
            self._client = _connect(self._cluster)
        try:
            return getattr(self._client, request)(*arguments, **options)
        except allowed:  # somebody else did it already
            return None
        except KafkaError:
            self.close()
            raise

    def _retryable(self, error: KafkaError | type[KafkaError], request: str) -> Retryable:
        name = error.__name__ if isinstance(error, type) else type(error).__name__
        return Retryable(
            f"Kafka cluster {self._cluster.name} at {self._cluster.bootstrap_servers} did not answer {request} "
            f"({name}); check the address and that its brokers run, then try again",
            after=1.0,
        )

    def _permanent(self, error: KafkaError, request: str) -> Permanent:
        return Permanent(
            f"Kafka cluster {self._cluster.name} at {self._cluster.bootstrap_servers} refused {request}: {error}",
            reason=type(error).__name__,
        )


def _broker_id(broker: Mapping[str, Any]) -> int:
    return int(broker["broker_id"])


def _reason(error: type[KafkaError]) -> str:
    return str(getattr(error, "description", None) or error.__name__)


def _connect(cluster: KafkaCluster) -> Any:
    settings = cluster.client_config()
    options: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers.split(","),
        "client_id": "blockhouse-topics",
        "security_protocol": settings["security.protocol"],
        "request_timeout_ms": REQUEST_TIMEOUT_MS,
        "bootstrap_timeout_ms": CONNECT_TIMEOUT_MS,
    }
    if cluster.sasl:
        options["sasl_mechanism"] = cluster.sasl.mechanism
        options["sasl_plain_username"] = cluster.sasl.username
        options["sasl_plain_password"] = cluster.sasl.password.read()
    if cluster.tls:
        options["ssl_context"] = _tls_context(cluster.tls)
    return KafkaAdminClient(**options)


def _tls_context(tls: Tls) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=str(tls.ca_file) if tls.ca_file else None)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file:
        password = tls.key_password.read() if tls.key_password else None
        context.load_cert_chain(tls.cert_file, tls.key_file, password)
    return context
