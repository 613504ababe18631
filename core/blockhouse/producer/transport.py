"""Messages to the first Kafka cluster that takes them: the local one, and the others while it is unavailable.

The clusters are independent, so a message must be in one of them only. When a delivery fails after its time-out
it is unknown whether the broker has it; it is sent to the next cluster all the same, for losing it would be worse: such
a message can be there twice, and that is the producer's duplicate (docs/producing.md). Within a cluster the idempotent
producer keeps retries from doubling. Must never drop a message without a report.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as Client
from tenacity import Retrying, retry_if_result, stop_after_delay, wait_fixed

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import BlockhouseError, Permanent, Retryable
from blockhouse.kafka_login import Login

_PERMANENT = frozenset(
    {
        KafkaError.MSG_SIZE_TOO_LARGE,
        KafkaError.INVALID_MSG,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_EXCEPTION,
        KafkaError._UNKNOWN_PARTITION,
        KafkaError._INVALID_ARG,
    }
)
"""Another cluster would refuse the message as well, or must not hide that this one did."""

_NO_TOPIC = frozenset({KafkaError.UNKNOWN_TOPIC_OR_PART, KafkaError._UNKNOWN_TOPIC})
_LOOK_SECONDS = 2.0
"""How long a cluster may take to answer whether it has the topic; sending waits for it, once."""

_DEFAULTS: Mapping[str, Any] = {
    "enable.idempotence": True,
    "linger.ms": 5,
    "compression.type": "lz4",
    "queue.buffering.max.messages": 200_000,
    "queue.buffering.max.kbytes": 128 << 10,
    "statistics.interval.ms": 1000,
    "log_level": 0,  # what matters comes as an error of a delivery
}


@dataclass(frozen=True, slots=True)
class Delivery:
    """What became of one message. `offset` is -1 and `error` set when no cluster took it. `tag` is the sender's own."""

    cluster: str
    topic: str
    partition: int
    offset: int
    tag: Any = None
    error: BlockhouseError | None = None


class DeliveryFailed(BlockhouseError):
    """Messages were not delivered: `failed` of them; the text has the first reason. They are not sent again."""

    def __init__(self, failed: int, first: BlockhouseError) -> None:
        super().__init__(f"{failed} messages were not delivered; the first: {first}")
        self.failed = failed
        self.first = first


@dataclass(frozen=True, slots=True)
class _Envelope:
    value: bytes
    headers: dict[str, str | bytes | None]
    partition: int | None
    key: bytes | None
    tag: Any
    tried: frozenset[str] = frozenset()


class _Cluster:
    """One cluster's client, and whether any of its brokers is connected as far as the client knows."""

    def __init__(self, config: KafkaCluster, settings: Mapping[str, Any]) -> None:
        self.name = config.name
        self.reachable = True
        self._login = Login(config)
        self.client = Client(
            {
                **_DEFAULTS,
                **settings,
                **config.client_config(),
                "error_cb": self._on_error,
                "stats_cb": self._on_statistics,
            }
        )

    def poll(self, timeout: float) -> None:
        """Carry out reports; waits up to `timeout` seconds for one."""
        self._login.refresh(self.client)
        self.client.poll(timeout)

    def _on_error(self, error: KafkaError) -> None:
        if error.code() == KafkaError._ALL_BROKERS_DOWN:
            self.reachable = False

    def _on_statistics(self, text: str) -> None:
        """Comes every second of polling; the only word the client gives of a cluster that is back."""
        brokers = json.loads(text)["brokers"].values()
        if any(broker["state"] == "UP" for broker in brokers):
            self.reachable = True


class Transport:
    """Sends bytes to a topic of the same name in several clusters. NOT thread-safe: one per thread.

    `clusters` in order of preference. `delivery_timeout` is how long, in seconds, one cluster may try.
    `on_delivery` is called for every message, in `send`, `poll` or `flush`.
    """

    def __init__(
        self,
        clusters: Sequence[KafkaCluster],
        topic: str,
        *,
        delivery_timeout: float = 10.0,
        on_delivery: Callable[[Delivery], None] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        if not clusters:
            raise ValueError("a transport needs a cluster")
        timeout = int(delivery_timeout * 1000)
        # A frozen broker must lose its connection, and with it the state UP, before its messages are abandoned.
        limits = {"message.timeout.ms": timeout, "request.timeout.ms": timeout // 2, "socket.timeout.ms": timeout // 2}
        own = {**limits, **(settings or {})}
        self._clusters = [_Cluster(cluster, own) for cluster in clusters]
        self._topic = topic
        self._on_delivery = on_delivery
        self._failed = 0
        self._first_failure: BlockhouseError | None = None
        self._again: list[_Envelope] = []

    def send(
        self,
        value: bytes,
        headers: Mapping[str, str],
        *,
        partition: int | None = None,
        key: bytes | None = None,
        tag: Any = None,
    ) -> None:
        """Queue one message; waits while the queue is full. Its fate comes to `on_delivery`.

        Raises Permanent for a message that no cluster would take.
        """
        self._put(_Envelope(value, dict(headers), partition, key, tag))

    def poll(self, timeout: float = 0.0) -> None:
        """Carry out reports of deliveries; waits up to `timeout` seconds for one."""
        for cluster in self._clusters:
            cluster.poll(timeout / len(self._clusters))
        while self._again:
            self._put(self._again.pop())

    def flush(self, timeout: float = 30.0) -> None:
        """Wait until every message has its report. Raises DeliveryFailed if any failed since the last call, Retryable
        if some have no report after `timeout` seconds (they are still being tried)."""
        end = time.monotonic() + timeout
        while self.waiting:
            if time.monotonic() > end:
                raise Retryable(f"{self.waiting} messages for topic {self._topic} wait for delivery after {timeout} s")
            self.poll(0.05)
        if self._first_failure is not None:
            failure = DeliveryFailed(self._failed, self._first_failure)
            self._failed, self._first_failure = 0, None
            raise failure

    @property
    def waiting(self) -> int:
        """Messages without a report yet."""
        return sum(len(cluster.client) for cluster in self._clusters) + len(self._again)

    @property
    def reachable(self) -> Mapping[str, bool]:
        """Whether each cluster has a connected broker, as far as its client knows."""
        return {cluster.name: cluster.reachable for cluster in self._clusters}

    def require_topic(self, patience: float = 2.0) -> None:
        """Raises Permanent(UnknownTopic) when no cluster has the topic: each of them answered so, and still does after
        `patience` seconds, for a topic that was just created is not known at once. One that does not answer may have
        it."""
        tries = Retrying(
            retry=retry_if_result(bool),
            stop=stop_after_delay(patience),
            wait=wait_fixed(0.1),
            retry_error_callback=lambda _: True,
        )
        if tries(lambda: all(map(self._lacks_topic, self._clusters))):
            names = ", ".join(cluster.name for cluster in self._clusters)
            text = f"there is no topic {self._topic} in Kafka cluster {names}: correct `topic`, or create it there"
            raise Permanent(text, reason="UnknownTopic")

    def _lacks_topic(self, cluster: _Cluster) -> bool:
        try:
            found = cluster.client.list_topics(self._topic, timeout=_LOOK_SECONDS).topics[self._topic]
        except KafkaException:
            return False
        return found.error is not None and found.error.code() in _NO_TOPIC

    def partitions(self, timeout: float = 10.0) -> int:
        """Number of partitions of the topic in the preferred cluster. Raises Retryable or Permanent(UnknownTopic)."""
        cluster = self._clusters[0]
        try:
            found = cluster.client.list_topics(self._topic, timeout=timeout).topics[self._topic]
        except KafkaException as error:
            raise _translated(error.args[0], f"listing topic {self._topic}", cluster.name) from error
        if found.error is not None:
            raise Permanent(f"Kafka cluster {cluster.name} has no topic {self._topic}", reason="UnknownTopic")
        return len(found.partitions)

    def _put(self, envelope: _Envelope) -> None:
        cluster = self._choose(envelope)
        arguments: dict[str, Any] = {"on_delivery": partial(self._report, cluster, envelope)}
        if envelope.partition is not None:
            arguments["partition"] = envelope.partition
        while True:
            try:
                cluster.client.produce(
                    self._topic, envelope.value, key=envelope.key, headers=envelope.headers, **arguments
                )
                return
            except BufferError:
                cluster.poll(0.1)
            except KafkaException as error:
                raise _translated(error.args[0], f"sending to topic {self._topic}", cluster.name) from error

    def _choose(self, envelope: _Envelope) -> _Cluster:
        """The first reachable cluster that has not failed the message; if none is reachable, the first of those."""
        untried = [cluster for cluster in self._clusters if cluster.name not in envelope.tried]
        return next((cluster for cluster in untried if cluster.reachable), untried[0])

    def _report(self, cluster: _Cluster, envelope: _Envelope, error: KafkaError | None, message: Any) -> None:
        """Called by the client inside poll: must not raise, must not wait."""
        if error is None:
            self._deliver(Delivery(cluster.name, self._topic, message.partition(), message.offset(), envelope.tag))
            return
        tried = envelope.tried | {cluster.name}
        if error.code() not in _PERMANENT and len(tried) < len(self._clusters):
            cluster.reachable = False  # until its client sees a broker again
            self._again.append(replace(envelope, tried=tried))
            return
        failure = _translated(error, f"delivering to topic {self._topic}", cluster.name)
        self._failed += 1
        self._first_failure = self._first_failure or failure
        self._deliver(Delivery(cluster.name, self._topic, message.partition(), -1, envelope.tag, failure))

    def _deliver(self, delivery: Delivery) -> None:
        if self._on_delivery is not None:
            self._on_delivery(delivery)


def _translated(error: KafkaError, doing: str, cluster: str) -> Permanent | Retryable:
    text = f"Kafka cluster {cluster}: {doing} failed: {error.str()} ({error.name()})"
    if error.code() in _PERMANENT or error.fatal():
        return Permanent(text, reason=str(error.name()), code=error.code())
    return Retryable(text, after=1.0, code=error.code())
