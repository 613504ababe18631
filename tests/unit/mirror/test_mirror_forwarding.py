"""When a task reads on, and when it waits for acknowledgements or pauses a partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError, Message

from blockhouse_mirror.work import forwarding as module
from blockhouse_mirror.work.forwarding import Forwarding
from blockhouse_mirror.work.link import Link
from blockhouse_mirror.work.source import END
from blockhouse_mirror.work.target import Content, NotSent
from tests.unit.mirror.test_mirror_lease import ASSIGNED

SIZE = 1000


class Clusters:
    """The source gives a record of each partition in turn; the target keeps the callbacks until it is asked."""

    broken = ""

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

    def send(self, topic: str, partition: int, records: Sequence[Content], delivered: Any) -> None:
        self.unacknowledged.append((delivered, self.reads - 1))

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


class Ending(Clusters):
    """The target's client refuses the record at `refused`, and all behind it, with `code`."""

    def __init__(self, messages: list[Message], refused: int, code: int) -> None:
        super().__init__(partitions=1)
        self.messages, self.refused, self.code = messages, refused, code
        self.sent: list[Any] = []
        self.waited: list[float] = []

    def read(self, most: int, seconds: float) -> list[Message]:
        self.waited.append(seconds)
        found, self.messages = self.messages, []
        return found

    def send(self, topic: str, partition: int, records: Sequence[Content], delivered: Any) -> None:
        self.sent.append(len(records))
        if len(records) > self.refused:
            raise NotSent(self.refused, KafkaError(self.code))

    def end(self, why: str) -> None:
        self.broken = why


def record(offset: int) -> Message:
    return Message(topic="t", partition=0, offset=offset, value=b"v", timestamp=(1, 1))  # type: ignore[call-arg]


def log_end(offset: int) -> Message:
    return Message(topic="t", partition=0, offset=offset, error=KafkaError(END))  # type: ignore[call-arg]


@pytest.mark.parametrize(
    ("refused", "code", "reason", "ends"),
    [
        (0, KafkaError._FATAL, "", True),
        (2, KafkaError._FATAL, "", True),
        (0, KafkaError._UNKNOWN_PARTITION, "TargetPartitionUnknown", False),
        (2, KafkaError._UNKNOWN_PARTITION, "TargetPartitionUnknown", True),
    ],
    ids=["the client has ended", "it ends within a run", "the first of a run", "behind others that do not report"],
)
def test_nothing_is_passed_that_could_not_be_sent(refused: int, code: int, reason: str, ends: bool) -> None:
    clusters: Any = Ending([record(0), record(1), record(2), log_end(9)], refused, code)
    link, refusals = Link(ASSIGNED, "S", []), list[str]()

    def refuse(link: Link, why: str, _: str) -> None:
        link.ending = True
        refusals.append(why)

    forwarding = Forwarding(clusters, clusters, "T", {link.key: link}, refuse, lambda _: clusters)

    forwarding.forward()

    assert (link.progress.position, link.progress.read, link.progress.settled) == (0, refused, refused == 0)
    assert (refusals, bool(clusters.broken)) == ([reason] if reason else [], ends)


def test_the_last_record_before_the_end_of_a_log_reports_for_those_before_it() -> None:
    clusters: Any = Ending([record(0), record(1), log_end(2)], refused=9, code=0)
    link = Link(ASSIGNED, "S", [])
    forwarding = Forwarding(clusters, clusters, "T", {link.key: link}, lambda *_: None, lambda _: clusters)

    forwarding.forward()

    assert clusters.sent == [2]
    link.delivered(None, record(1))
    assert (link.progress.position, link.progress.records, link.progress.settled) == (2, 2, True)


def test_a_batch_that_does_not_fill_is_waited_for_longer_only_while_nothing_comes() -> None:
    clusters: Any = Ending([record(0)], refused=9, code=0)
    link = Link(ASSIGNED, "S", [])
    forwarding = Forwarding(clusters, clusters, "T", {link.key: link}, lambda *_: None, lambda _: clusters)
    forwarding.share = forwarding.enough = SIZE

    for _ in range(3):
        forwarding.forward()

    assert clusters.waited == [module.IDLE_READ_SECONDS, module.READ_SECONDS, module.IDLE_READ_SECONDS]
