"""When a task reads on, and when it waits for acknowledgements or pauses a partition."""

from __future__ import annotations

from typing import Any

import pytest
from confluent_kafka import Message

from blockhouse_mirror.work import forwarding as module
from blockhouse_mirror.work.forwarding import Forwarding
from blockhouse_mirror.work.link import Link
from tests.unit.mirror.test_mirror_lease import ASSIGNED

SIZE = 1000


class Clusters:
    """The source gives a record of each partition in turn; the target keeps the callbacks until it is asked."""

    def __init__(self, partitions: int) -> None:
        self.partitions, self.reads, self.polls = partitions, 0, 0
        self.unacknowledged: list[tuple[Any, int]] = []
        self.paused: list[tuple[str, int]] = []

    def read(self, most: int, seconds: float) -> list[Message]:
        self.reads += 1
        return [
            Message(topic="t", partition=number, offset=self.reads - 1, value=b"v" * SIZE, timestamp=(1, 1))  # type: ignore[call-arg]
            for number in range(self.partitions)
        ]

    def pause(self, keys: list[tuple[str, int]]) -> None:
        self.paused += keys

    def send(self, *record: Any) -> None:
        self.unacknowledged.append((record[-1], self.reads - 1))

    def poll(self, seconds: float) -> None:
        self.polls += 1

    def acknowledge(self) -> None:
        for delivered, offset in self.unacknowledged:
            delivered(None, Message(topic="t", partition=0, offset=offset))  # type: ignore[call-arg]
        self.unacknowledged = []


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [1000.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: now[0])
    return now


def started(clusters: Clusters, *, share: int, enough: int) -> Forwarding:
    links = {}
    for number in range(clusters.partitions):
        link = Link(ASSIGNED.model_copy(update={"partition": number}), "S", [])
        link.started = True
        links[link.key] = link
    every: Any = clusters
    found = Forwarding(every, every, "T", links, lambda *_: None, lambda _: every)
    found.share, found.enough = share, enough
    return found


def test_with_enough_in_flight_it_waits_for_acknowledgements_and_pauses_nothing(clock: list[float]) -> None:
    clusters = Clusters(partitions=4)
    forwarding = started(clusters, share=10 * SIZE, enough=4 * SIZE)

    for _ in range(5):
        forwarding.forward()

    assert (clusters.reads, clusters.polls, clusters.paused) == (2, 3, [])
    clusters.acknowledge()
    forwarding.forward()
    assert clusters.reads == 3


def test_a_target_that_stays_silent_delays_the_others_no_longer_than_its_patience(clock: list[float]) -> None:
    clusters = Clusters(partitions=2)
    forwarding = started(clusters, share=3 * SIZE, enough=SIZE)
    forwarding.forward()
    forwarding.forward()
    assert clusters.reads == 1

    clock[0] += module.PATIENCE
    for _ in range(3):
        forwarding.forward()

    assert clusters.reads == 4
    assert sorted(clusters.paused) == [("t", 0), ("t", 1)]


def test_what_is_paused_does_not_keep_the_others_from_being_read(clock: list[float]) -> None:
    clusters = Clusters(partitions=1)
    forwarding = started(clusters, share=SIZE // 2, enough=SIZE // 2)
    forwarding.forward()
    assert clusters.paused == [("t", 0)]

    forwarding.forward()

    assert (clusters.reads, clusters.polls) == (2, 0)
