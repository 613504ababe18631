"""What the tests of group members share: a listener that writes down what it hears, and settings."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.pipeline import Kafka
from blockhouse.errors import BlockhouseError
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.group import DropReason
from blockhouse_aggregator.kafka.member import GroupMember

Event = tuple[Any, ...]


class Recorder:
    """A GroupListener. `events` may be shared by several recorders, to see the order among members."""

    def __init__(self, name: str = "", events: list[Event] | None = None) -> None:
        self.name = name
        self.events: list[Event] = [] if events is None else events
        self.owned: dict[StreamId, int] = {}
        self.failures: list[BlockhouseError] = []
        self.recoveries = 0
        self.drops: list[DropReason] = []
        self.settled: Future[None] = Future()
        """What it answers when streams are to be released: settled at once, unless a test replaces it."""
        self.settled.set_result(None)
        self._changed = threading.Condition()

    def assigned(self, stream: StreamId, epoch: int) -> None:
        with self._changed:
            self.owned[stream] = epoch
            self.events.append((self.name, "assigned", stream, epoch))
            self._changed.notify_all()

    def settling(self, held: Mapping[StreamId, int]) -> Future[None]:
        with self._changed:
            self.events.append((self.name, "settling", dict(held)))
            self._changed.notify_all()
        return self.settled

    def dropped(self, stream: StreamId, epoch: int, reason: DropReason) -> None:
        with self._changed:
            assert self.owned.pop(stream) == epoch
            self.drops.append(reason)
            self.events.append((self.name, "dropped", stream, epoch))
            self._changed.notify_all()

    def failed(self, error: BlockhouseError) -> None:
        with self._changed:
            self.failures.append(error)
            self._changed.notify_all()

    def recovered(self) -> None:
        with self._changed:
            self.recoveries += 1
            self._changed.notify_all()

    def wait(self, condition: Callable[[], bool], timeout: float = 60) -> None:
        """Until the condition about this recorder holds; fails with everything heard so far."""
        with self._changed:
            assert self._changed.wait_for(condition, timeout), (self.name, self.events, self.failures)

    def owns(self, count: int, timeout: float = 60) -> dict[StreamId, int]:
        """Waits until `count` streams are owned; returns them with their epochs."""
        self.wait(lambda: len(self.owned) == count, timeout)
        return dict(self.owned)


def settings_of(bootstrap: str, topic: str, group: str, **kafka: Any) -> tuple[KafkaCluster, Kafka]:
    cluster = KafkaCluster(name="a", bootstrap_servers=bootstrap)
    timing = {"session_timeout": 10, "heartbeat_interval": 0.5, "commit_timeout": 3}
    return cluster, Kafka(topic=topic, group=group, clusters=(cluster,), **{**timing, **kafka})


@contextmanager
def member(
    cluster: KafkaCluster, kafka: Kafka, instance: str, events: list[Event] | None = None
) -> Iterator[tuple[GroupMember, Recorder]]:
    """A member that has asked to join; it has left when the context ends."""
    recorder = Recorder(instance, events)
    subject = GroupMember(cluster, kafka, instance, recorder)
    try:
        subject.join().result(60)
        yield subject, recorder
    finally:
        subject.close(leave=True)
