"""Positions on the target: offsets of the group `km-NAME`, written by the one member it has.

The driver joins as a static member under a name that all drivers of the mirror share: joining, it fences the former
one, whose commits are refused from then on, whatever Kubernetes believes about it.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeoutError
from contextlib import suppress
from typing import Any

from confluent_kafka import Consumer, KafkaException, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.kafka_errors import is_fatal, translate
from blockhouse.kafka_login import Login
from blockhouse.lane import Lane
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.protocol import position as codec
from blockhouse_mirror.protocol.position import Position

INSTANCE = "driver"
SESSION_SECONDS = 10.0
ANSWER_SECONDS = 10.0
POLL_SECONDS = 0.2
LOST_SECONDS = 40.0
"""After which the client is taken for stuck: all that is bounded in it ends within 30 s. A commit is not (librdkafka
2.16): one that is under way when its broker ends is sent again by the client itself, and was not answered within 180 s
where that broker was back with another password and had ended the membership."""
CLOSE_SECONDS = 5.0


class PositionGroup:
    """The group of one mirror. Blocking, for LOST_SECONDS at most; safe for any thread: one thread of its own makes all
    calls of the client."""

    def __init__(self, cluster: KafkaCluster, group: str) -> None:
        self.fenced: str = ""
        """Why another driver has the mirror now, or may have it; empty while it is ours."""
        self._group, self._cluster = group, cluster
        self._joined = threading.Event()
        self._closed = False
        self._topics: frozenset[str] = frozenset()
        self._consumer = Consumer(
            {
                **cluster.client_config(),
                "group.id": group,
                "group.instance.id": INSTANCE,
                "client.id": f"blockhouse-{group}",
                "group.protocol": "classic",
                "partition.assignment.strategy": "cooperative-sticky",
                "session.timeout.ms": int(SESSION_SECONDS * 1000),
                "heartbeat.interval.ms": 1000,
                "enable.auto.commit": False,
                "enable.auto.offset.store": False,
                "auto.offset.reset": "error",
                "topic.metadata.refresh.interval.ms": 5_000,
                "log_level": 0,
            }
        )
        self._login = Login(cluster)
        self._lane = Lane("positions")

    def subscribe(self, topics: Collection[str], seconds: float) -> None:
        """Be a member that is subscribed to these topics of the target, so that positions in them do not expire.
        Nothing of them is read. Raises Retryable when the group does not answer within so many seconds."""
        self._call(self._subscribe, frozenset(topics))
        if not self._joined.wait(seconds):
            raise Retryable(f"group {self._group} on cluster {self._cluster.name} did not answer in {seconds:g} s")

    def poll(self) -> None:
        """Keep the membership; call it at least every few seconds."""
        self._call(self._poll)

    def read(self, keys: Collection[Key]) -> dict[Key, Position]:
        """The positions of these partitions of the target; those that have none are left out. Raises Retryable, or
        Permanent for one that cannot be read."""
        found: dict[Key, Position] = self._call(self._read, list(keys))
        return found

    def write(self, positions: Mapping[Key, Position]) -> None:
        """Commit. Raises Permanent `MirrorFenced` when another driver has the mirror or may have it, Retryable when it
        is not known whether the positions are written."""
        self._call(self._write, dict(positions))

    def close(self) -> None:
        """Stay a member for the broker until the session times out: leaving is not needed, the next driver replaces
        us."""
        if not self._closed:
            self._closed = True
            with suppress(FutureTimeoutError, KafkaException):  # one that did not end in order is left to the process
                self._lane.submit(self._consumer.close).result(CLOSE_SECONDS)
            self._lane.end()

    # --- on the thread --------------------------------------------------------------------------------------

    def _call(self, function: Any, *arguments: Any) -> Any:
        if self._closed:
            raise Retryable(f"group {self._group} is closed")
        future = self._lane.submit(lambda: function(*arguments))
        try:
            return future.result(LOST_SECONDS)
        except FutureTimeoutError as error:
            self.fenced = (
                f"group {self._group} on cluster {self._cluster.name} has not answered for {LOST_SECONDS:g} s: another "
                "driver may have the mirror by now, so this one ends and has to be started again"
            )
            raise Permanent(self.fenced, reason="MirrorFenced") from error

    def _subscribe(self, topics: frozenset[str]) -> None:
        if topics == self._topics:
            return
        self._joined.clear()
        self._topics = topics
        self._consumer.subscribe(sorted(topics), on_assign=self._assigned, on_revoke=lambda *_: None)
        for _ in range(int(ANSWER_SECONDS / POLL_SECONDS)):
            self._poll()
            if self._joined.is_set():
                return

    def _assigned(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        self._joined.set()

    def _poll(self) -> None:
        self._login.refresh(self._consumer)
        message = self._consumer.poll(POLL_SECONDS)
        if message is not None and (error := message.error()) is not None and is_fatal(error):
            self._fence(str(error))

    def _read(self, keys: list[Key]) -> dict[Key, Position]:
        return _stored(self._consumer, self._group, keys)

    def _write(self, positions: dict[Key, Position]) -> None:
        if self.fenced:
            raise Permanent(self.fenced, reason="MirrorFenced")
        try:
            answered = self._consumer.commit(offsets=list(_committed(positions)), asynchronous=False)
        except KafkaException as error:
            if is_fatal(error.args[0]):
                self._fence(error.args[0].str())
                raise Permanent(self.fenced, reason="MirrorFenced") from error
            raise translate(error, f"writing positions of group {self._group}") from error
        for each in answered or ():
            if each.error is not None:
                raise translate(each.error, f"writing the position of {each.topic}/{each.partition}")

    def _fence(self, why: str) -> None:
        self.fenced = (
            f"another driver of this mirror has joined group {self._group} on cluster {self._cluster.name}: {why}; "
            "one driver a mirror, and every mirror needs a name of its own"
        )


def _committed(positions: Mapping[Key, Position]) -> Iterable[TopicPartition]:
    for key, position in positions.items():
        yield TopicPartition(key.topic, key.partition, position.tail, codec.encode(position))


def read_positions(cluster: KafkaCluster, group: str, keys: Collection[Key]) -> dict[Key, Position]:
    """As `PositionGroup.read`, without being a member."""
    consumer = Consumer(
        {**cluster.client_config(), "group.id": group, "client.id": "blockhouse-positions", "log_level": 0}
    )
    try:
        return _stored(consumer, group, list(keys))
    finally:
        consumer.close()


def _stored(consumer: Consumer, group: str, keys: list[Key]) -> dict[Key, Position]:
    if not keys:
        return {}
    try:
        found = consumer.committed([TopicPartition(*key) for key in keys], ANSWER_SECONDS)
    except KafkaException as error:
        raise translate(error, f"reading positions of group {group}") from error
    for each in found:
        if each.error is not None:
            raise translate(each.error, f"reading the position of {each.topic}/{each.partition}")
    return {
        Key(each.topic, each.partition): codec.decode(each.offset, each.metadata or "")
        for each in found
        if each.offset >= 0
    }
