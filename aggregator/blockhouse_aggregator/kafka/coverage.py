"""Whether every partition of the topic has an owner in the group, and who puts it right.

A static member that was replaced under its instance id is given what its predecessor was left with, and the group is
stable again. What the predecessor had released and not yet asked the next round to move (its broker died in between)
has no owner from then on, and no member learns of it. Any round repairs it; so one of the members has to begin one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass

import structlog
from confluent_kafka import ConsumerGroupState, KafkaException, TopicCollection

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.pipeline import Kafka
from blockhouse.errors import Retryable
from blockhouse_aggregator.kafka.connecting import admin_client

log = structlog.get_logger(__name__)

_ASK_SECONDS = 5.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What the group's coordinator reports: its partitions without an owner, and how many each instance owns, also one
    that owns none; and how many partitions the topic has."""

    stable: bool
    partitions: int
    unowned: Collection[int]
    owned: Counter[str]

    def rank(self, instance_id: str) -> int:
        """Whether we act first, or how many would before us: the member that owns least has least to release."""
        return sorted({*self.owned, instance_id}, key=lambda name: (self.owned[name], name)).index(instance_id)


def ask(cluster: KafkaCluster, kafka: Kafka) -> Standing:
    """Ask cluster and coordinator, for a few seconds. Raises KafkaException, BlockhouseError or TimeoutError."""
    admin = admin_client(cluster, {})
    seconds = {"request_timeout": _ASK_SECONDS}
    topic = admin.describe_topics(TopicCollection([kafka.topic]), **seconds)[kafka.topic].result(2 * _ASK_SECONDS)
    group = admin.describe_consumer_groups([kafka.group], **seconds)[kafka.group].result(2 * _ASK_SECONDS)
    owned = {
        member.group_instance_id or member.member_id: {
            entry.partition for entry in member.assignment.topic_partitions if entry.topic == kafka.topic
        }
        for member in group.members
    }
    return Standing(
        stable=group.state == ConsumerGroupState.STABLE,
        partitions=len(topic.partitions),
        unowned={partition.id for partition in topic.partitions}.difference(*owned.values()),
        owned=Counter({name: len(partitions) for name, partitions in owned.items()}),
    )


def answered(cluster: KafkaCluster, kafka: Kafka) -> Standing:
    """What `ask` answers. Raises Retryable when the cluster does not."""
    try:
        return ask(cluster, kafka)
    except (KafkaException, TimeoutError) as error:
        text = f"Kafka cluster {cluster.name} does not describe group {kafka.group}: {error}"
        raise Retryable(text, after=1.0) from error


class Coverage:
    """One member's view of its group: looks after every assignment of its own until all is owned.

    Assignments change with a generation only, and a member that gets one of it, or takes a predecessor's place in it,
    has its callback called: a group at rest is not asked at all. Belongs to the member's thread and never makes it
    wait."""

    def __init__(self, cluster: KafkaCluster, kafka: Kafka, instance_id: str) -> None:
        self._cluster = cluster
        self._kafka = kafka
        self._instance_id = instance_id
        # In a round that moves streams they have no owner for a while: as long as their owner settles and commits, or
        # is dead without its session having ended.
        self._least_patience = self._patience = kafka.session_timeout + 2 * kafka.commit_timeout
        self.forget()

    def forget(self) -> None:
        """We are out of the group, or have just begun to join."""
        self._looks = False
        self._restart()

    def assigned(self) -> None:
        """We have been given an assignment: a round has repaired what it could."""
        self._looks = True
        self._restart()

    def _restart(self) -> None:
        """What was asked before counts no more: its answer may be about the round before."""
        self._asked: Future[Standing | None] | None = None
        self._since: float | None = None
        self._next_ask = time.monotonic() + _ASK_SECONDS

    def overdue(self) -> bool:
        """Whether a stream has been without an owner for too long and it is on us to begin a round."""
        now = time.monotonic()
        if not self._looks:
            return False
        if self._asked is None:
            if now >= self._next_ask:
                self._asked = _in_background(lambda: ask(self._cluster, self._kafka))
            return False
        if not self._asked.done():
            return False
        standing, self._asked = self._asked.result(), None
        self._next_ask = now + _ASK_SECONDS
        return self._judge(standing, now)

    def _judge(self, standing: Standing | None, now: float) -> bool:
        """Only what is seen without interruption counts, so that an outage is no one's fault."""
        if standing is None or not standing.stable:
            self._since = None
            return False
        if not standing.unowned:
            self.forget()
            self._patience = self._least_patience
            return False
        if self._since is None:
            self._since = now
        if now - self._since < self._patience * (standing.rank(self._instance_id) + 1):
            return False
        log.warning(
            "streams_unowned",
            cluster=self._cluster.name,
            topic=self._kafka.topic,
            partitions=sorted(standing.unowned),
            seconds=round(now - self._since, 1),
        )
        self._patience *= 2  # a round that does not repair it is no use more often
        return True


def _in_background(question: Callable[[], Standing]) -> Future[Standing | None]:
    """On a daemon thread: a client that cannot reach its cluster takes its time, even to end. None: no answer."""
    future: Future[Standing | None] = Future()

    def run() -> None:
        standing = None
        try:
            standing = question()
        except Exception as error:  # noqa: BLE001 - nothing depends on an answer; kept, it would keep its client alive
            log.debug("group_not_described", error=str(error))
        future.set_result(standing)

    try:
        threading.Thread(target=run, name="kafka-coverage", daemon=True).start()
    except RuntimeError as error:  # no thread can be had: no reason to end the member
        log.debug("group_not_described", error=str(error))
        future.set_result(None)
    return future
