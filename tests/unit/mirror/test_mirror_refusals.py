"""A task whose target refuses records that are sent alone: dead letters, their order, and what the driver hears."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError

from blockhouse.gate.client import GateAddress
from blockhouse_mirror.gate.messages import Assign, Failed, FromTask, Released, Stop
from blockhouse_mirror.protocol.provenance import newest
from blockhouse_mirror.work import forwarding, refusals
from blockhouse_mirror.work import task as module
from blockhouse_mirror.work.forwarding import CAREFUL
from blockhouse_mirror.work.target import Content
from blockhouse_mirror.work.task import MirrorLease, run_leases
from tests.unit.mirror.driving import config
from tests.unit.mirror.test_mirror_alone import Error
from tests.unit.mirror.test_mirror_lease import ASSIGNED, WELCOME, Gate, Message, World


class Source:
    """Five records."""

    def __init__(self) -> None:
        self.position, self.paused = 0, False

    def add(self, places: Any) -> None:
        pass

    remove = add

    def read(self, most: int, seconds: float) -> list[Message]:
        found = [] if self.paused else [Message(offset) for offset in range(self.position, 5)]
        self.position = self.position if self.paused else 5
        return found

    def pause(self, keys: Any) -> None:
        self.paused = True

    def resume(self, keys: Any) -> None:
        self.paused = False

    def end(self, key: Any) -> int:
        return 5

    def close(self) -> None:
        pass


class Brokers(World):
    """Refuse the records of these source offsets; the lease is stopped when it has done all it can."""

    def __init__(self, refused: set[int], letters: str, refuses_letters: bool = False) -> None:
        super().__init__([], records=-1)
        self.refused, self.refuses_letters = refused, refuses_letters
        self.orders.get()
        self.orders.put(Assign(partitions=(ASSIGNED.model_copy(update={"careful_until": 4}),)))
        self.welcome = WELCOME.model_copy(update={"dead_letters": letters})
        self.log: list[tuple[str, int]] = []
        self.producers = 0

    def send(self, message: FromTask) -> None:
        super().send(message)
        if isinstance(message, Released):
            self.orders.put(Stop())

    def accepts(self, topic: str, offset: int) -> bool:
        return not self.refuses_letters if topic == "dead" else offset not in self.refused


class Target:
    broken = ""

    def __init__(self, brokers: Brokers) -> None:
        self._brokers = brokers
        brokers.producers += 1
        self._waiting: list[Any] = []

    def send(self, topic: str, partition: int, records: Sequence[Content], delivered: Any) -> None:
        for number, (_, _, _, headers) in enumerate(records, 1):
            origin = newest(headers)
            assert origin is not None
            self._waiting.append((topic, origin.offset, delivered if number == len(records) else None))

    def poll(self, seconds: float) -> None:
        waiting, self._waiting, log = self._waiting, [], self._brokers.log
        for topic, offset, delivered in waiting:
            if self._brokers.accepts(topic, offset):
                log.append((topic, offset))
                if delivered is not None:
                    delivered(None, Message(len(log)))
            else:
                delivered(Error(KafkaError.INVALID_RECORD), Message(-1))
        if ("t", 4) in log:
            self._brokers.orders.put(Stop())

    def purge(self) -> None:
        pass

    def learn(self, topic: str, seconds: float) -> None:
        pass


def run(brokers: Brokers, monkeypatch: pytest.MonkeyPatch, target: type[Target] = Target) -> None:
    monkeypatch.setattr(module, "GateConnection", lambda *_, **__: Gate(brokers))
    monkeypatch.setattr(module, "Source", lambda *_: Source())
    monkeypatch.setattr(module, "Target", lambda *_: target(brokers))
    settings = config()
    lease = MirrorLease("m", "task0", 1, 1, GateAddress("127.0.0.1", 1, b""), settings.source, settings.target)
    list(run_leases([lease]))


def test_a_letter_stands_where_its_record_would_and_the_order_of_all_others_holds(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    brokers = Brokers({1, 2}, "dead")

    run(brokers, monkeypatch)

    assert brokers.log == [("t", 0), ("dead", 1), ("dead", 2), ("t", 3), ("t", 4)]
    released = next(each for each in brokers.answers if isinstance(each, Released))
    assert released.offset == 5
    assert not [each for each in brokers.answers if isinstance(each, Failed)]


def test_after_a_letter_records_are_sent_alone_for_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CAREFUL > 2
    brokers = Brokers({3}, "dead")

    run(brokers, monkeypatch)

    assert brokers.producers == 3, "the task's, and two of the partition: 4 was sent by that which wrote the letter"


@pytest.mark.parametrize(("letters", "refuses_letters"), [("", False), ("dead", True)])
def test_a_record_without_a_letter_stops_its_partition_before_it_and_not_its_task(
    monkeypatch: pytest.MonkeyPatch, letters: str, refuses_letters: bool
) -> None:
    brokers = Brokers({2}, letters, refuses_letters)

    run(brokers, monkeypatch)

    assert brokers.log == [("t", 0), ("t", 1)]
    (stopped,) = [each for each in brokers.answers if isinstance(each, Failed)]
    assert (stopped.reason, stopped.careful_until, stopped.released) == ("RecordRefused", -1, False)
    assert "offset 2" in stopped.message
    released = next(each for each in brokers.answers if isinstance(each, Released))
    assert released.offset == 2


class Batch(Target):
    """Refuses a batch of the second and third of five records, and none of the five is on the target then."""

    def poll(self, seconds: float) -> None:
        waiting, self._waiting = self._waiting, []
        for _, offset, delivered in waiting:
            self.broken = "fatal"
            code = KafkaError.INVALID_RECORD if offset in (1, 2) else KafkaError._PURGE_INFLIGHT
            if delivered is not None:
                delivered(Error(code), Message(-1))


@pytest.mark.parametrize(
    ("size", "until"),
    [(1, 3 + 1), (2, 3 + 1), (5, 4)],
    ids=["each reports", "the second one reports", "none of the batch reports"],
)
def test_after_a_refused_batch_what_was_in_it_and_some_more_is_sent_alone(
    size: int, until: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`size` is that of a run, of which the last record alone reports."""
    brokers = Brokers(set(), "dead")
    brokers.orders.get()
    brokers.orders.put(Assign(partitions=(ASSIGNED,)))
    codes: list[int] = []
    monkeypatch.setattr(forwarding, "RUN_BYTES", size)
    monkeypatch.setattr(module, "REPORT_SECONDS", 0.0)
    monkeypatch.setattr(refusals, "CAREFUL", 1)
    monkeypatch.setattr(module, "end_process", codes.append)

    run(brokers, monkeypatch, Batch)

    (refused,) = [each for each in brokers.answers if isinstance(each, Failed)]
    assert (refused.reason, refused.careful_until) == ("RecordRefused", until)
    assert codes == [module.EXIT_UNCLEAN], "what was in flight must not be sent by anyone"
