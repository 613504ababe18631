"""A real driver of a mirror between two clusters that are lists in memory: nothing of it is started."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping

import pytest

from blockhouse.config.load import parse_as
from blockhouse.config.mirror import MirrorConfig
from blockhouse.errors import Retryable
from blockhouse.load.model import Sample
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.kafka.bounds import Bounds
from blockhouse_mirror.kafka.topics import Discovery, MirroredTopic
from blockhouse_mirror.protocol.position import Position
from blockhouse_mirror.runtime import driver as module
from blockhouse_mirror.runtime.driver import Driver
from blockhouse_mirror.work.lease import LeaseFigures, MirrorLease

SMALLEST = "name: m\nsource: {name: a, bootstrapServers: 'a:9092'}\ntarget: {name: b, bootstrapServers: 'b:9092'}\n"
TOPIC = MirroredTopic("t", "t-id", 2, "t", "u-id")
P, Q = Key("t", 0), Key("t", 1)


class Clusters:
    """Both clusters, as the driver's adapters answer. `failures` are raised by the next readings of positions, and
    their writing is `answering` unless that is cleared."""

    def __init__(self) -> None:
        self.topics: tuple[MirroredTopic, ...] = (TOPIC,)
        self.source = {P: Bounds(10, 90), Q: Bounds(0, 5)}
        self.target = {P: Bounds(0, 45), Q: Bounds(0, 0)}
        self.positions: dict[Key, Position] = {}
        self.failures: list[Retryable] = []
        self.answering = threading.Event()
        self.answering.set()

    def discover(self) -> Discovery:
        return Discovery("S", "T", self.topics, {})

    def close(self) -> None:
        pass


class Limits:
    def __init__(self, bounds: Mapping[Key, Bounds]) -> None:
        self._bounds = bounds

    def of(self, keys: Collection[Key]) -> dict[Key, Bounds]:
        return {key: self._bounds[key] for key in keys if key in self._bounds}


class Group:
    fenced = ""

    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def subscribe(self, topics: Collection[str], seconds: float) -> None:
        pass

    def read(self, keys: Collection[Key]) -> dict[Key, Position]:
        if self._clusters.failures:
            raise self._clusters.failures.pop()
        return {key: self._clusters.positions[key] for key in keys if key in self._clusters.positions}

    def write(self, positions: Mapping[Key, Position]) -> None:
        assert self._clusters.answering.wait(60)
        self._clusters.positions.update(positions)


class Ids:
    def __init__(self, clusters: Clusters) -> None:
        self._clusters = clusters

    def of(self, topics: Collection[str]) -> dict[str, str]:
        return {topic.name: topic.topic_id for topic in self._clusters.topics if topic.name in topics}


class Slots:
    def __init__(self, slots: int = 4) -> None:
        self.slots = slots

    def run_lease(self, spec: MirrorLease) -> LeaseFigures:
        raise AssertionError("nothing is started here")

    def cancel(self, spec: MirrorLease) -> None:
        raise AssertionError("nothing is started here")


class Unmeasured:
    name = "none"

    def sample(self) -> Sample | None:
        return None


def config(more: str = "") -> MirrorConfig:
    return parse_as(MirrorConfig, SMALLEST + more)


def driver_of(clusters: Clusters, monkeypatch: pytest.MonkeyPatch, more: str = "") -> Driver:
    """A driver that has not begun."""
    settings = config(more)
    monkeypatch.setattr(module, "MirrorTopics", lambda _: clusters)
    monkeypatch.setattr(
        module, "LogBounds", lambda c: Limits(clusters.source if c is settings.source else clusters.target)
    )
    monkeypatch.setattr(module, "PositionGroup", lambda *_: Group(clusters))
    monkeypatch.setattr(module, "TopicIds", lambda *_: Ids(clusters))
    return Driver(settings, Slots(), Unmeasured())
