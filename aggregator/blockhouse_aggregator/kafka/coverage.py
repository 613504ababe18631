"""Whether every partition of the topic has an owner in the group, and who puts it right.

A static member that was replaced under its instance id is given what its predecessor was left with, and the group is
stable again. What the predecessor had given up and not yet asked the next round to move (its broker died in between)
belongs to nobody from then on, and nobody in the group is told. Any round mends it; so somebody has to begin one.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Collection
from concurrent.futures import Future
from dataclasses import dataclass

import structlog
from confluent_kafka import ConsumerGroupState, TopicCollection
from confluent_kafka.admin import AdminClient

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.pipeline import Kafka

log = structlog.get_logger(__name__)

_ASK_SECONDS = 5.0
_LEAST_PATIENCE = 15.0


@dataclass(frozen=True, slots=True)
class Standing:
    """What the group's coordinator says: its partitions without an owner, and how many each instance owns."""

    stable: bool
    unowned: Collection[int]
    owned: Counter[str]

    def rank(self, instance_id: str) -> int:
        """Whether we act first, or how many would before us: whoever owns least has least to give up."""
        return sorted({*self.owned, instance_id}, key=lambda name: (self.owned[name], name)).index(instance_id)


def ask(cluster: KafkaCluster, kafka: Kafka) -> Standing:
    """Ask cluster and coordinator, for a few seconds. Raises KafkaException."""
    admin = AdminClient({**cluster.client_config(), "log_level": 0}, logger=None)
    seconds = {"request_timeout": _ASK_SECONDS}
    topic = admin.describe_topics(TopicCollection([kafka.topic]), **seconds)[kafka.topic].result()
    group = admin.describe_consumer_groups([kafka.group], **seconds)[kafka.group].result()
    owned = {
        member.group_instance_id or member.member_id: {
            entry.partition for entry in member.assignment.topic_partitions if entry.topic == kafka.topic
        }
        for member in group.members
    }
    return Standing(
        stable=group.state == ConsumerGroupState.STABLE,
        unowned={partition.id for partition in topic.partitions}.difference(*owned.values()),
        owned=Counter({name: len(partitions) for name, partitions in owned.items()}),
    )


class Coverage:
    """One member's view of its group: looks after every assignment of its own until all is owned.

    Nothing but a replacement makes the state (whoever is not replaced asks for the next round until it is heard, or
    its session ends, which is a round too), so a group at rest is not asked at all. Belongs to the member's thread
    and never makes it wait.
    """

    def __init__(self, cluster: KafkaCluster, kafka: Kafka, instance_id: str) -> None:
        self._cluster = cluster
        self._kafka = kafka
        self._instance_id = instance_id
        # In a round that moves streams they are nobody's for a while: as long as their owner settles and commits, or
        # is dead without its session having ended.
        self._patience = max(_LEAST_PATIENCE, kafka.session_timeout, 2 * kafka.commit_timeout)
        self._asked: Future[Standing] | None = None
        self._next_ask = 0.0
        self.forget()

    def forget(self) -> None:
        """We are out of the group, or have just begun to join."""
        self._looks = False
        self._since: float | None = None

    def assigned(self) -> None:
        """We have been given an assignment."""
        self._looks = True
        self._next_ask = time.monotonic() + _ASK_SECONDS

    def overdue(self) -> bool:
        """Whether a stream has been nobody's for too long and it is on us to begin a round."""
        now = time.monotonic()
        if self._asked is None:
            if self._looks and now >= self._next_ask:
                self._asked = _in_background(lambda: ask(self._cluster, self._kafka))
            return False
        if not self._asked.done():
            return False
        asked, self._asked = self._asked, None
        self._next_ask = now + _ASK_SECONDS
        return self._looks and self._judge(asked, now)

    def _judge(self, asked: Future[Standing], now: float) -> bool:
        """Only what is seen without interruption counts, so that an outage is nobody's fault."""
        error = asked.exception()
        standing = asked.result() if error is None else None
        if error is not None:
            log.debug("group_not_described", cluster=self._cluster.name, group=self._kafka.group, error=str(error))
        if standing is None or not standing.stable:
            self._since = None
            return False
        if not standing.unowned:
            self.forget()
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
        return True


def _in_background(question: Callable[[], Standing]) -> Future[Standing]:
    """On a daemon thread: a client that cannot reach its cluster takes its time, even to end."""
    future: Future[Standing] = Future()

    def run() -> None:
        try:
            future.set_result(question())
        except Exception as error:  # noqa: BLE001 - whoever asked judges it
            future.set_exception(error)

    threading.Thread(target=run, name="kafka-coverage", daemon=True).start()
    return future
