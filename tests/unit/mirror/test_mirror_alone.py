"""Records that are sent one at a time: which of them becomes a dead letter, and where the partition is meanwhile."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from confluent_kafka import KafkaError

from blockhouse_mirror.protocol.dead_letter import ANY, NOW, OMITTED, REASON, TIMESTAMP, TOPIC, Outgoing
from blockhouse_mirror.protocol.progress import Progress
from blockhouse_mirror.work import alone as module
from blockhouse_mirror.work.alone import Alone
from blockhouse_mirror.work.target import Content, NotSent

ORIGIN = ("blockhouse-mirror", b"1 S t-id 0 7")
RECORD = Outgoing("t", 3, b"k", b"value", 5, (("x", b"1"), ORIGIN))
Answer = int | None


class Error:
    def __init__(self, code: int) -> None:
        self._code = code

    def code(self) -> int:
        return self._code

    def str(self) -> str:
        return f"error {self._code}"


class Message:
    def offset(self) -> int:
        return 40


class Target:
    """Refuses what it is sent by the next code, and is broken by it as a producer is; takes it for None."""

    def __init__(self, world: World) -> None:
        self.broken = ""
        self._world = world
        self._waiting: list[Any] = []

    def send(self, topic: str, partition: int, records: Sequence[Content], delivered: Any) -> None:
        ((value, key, moment, headers),) = records
        assert not self.broken, "a producer that was refused once sends nothing more"
        answer = next(self._world.answers)
        self._world.sent.append(Outgoing(topic, partition, key, value, moment, tuple(headers)))
        if self._world.at_once and answer is not None:
            error: Any = Error(answer)
            raise NotSent(0, error)
        self._waiting.append((delivered, answer))

    def poll(self, seconds: float) -> None:
        for delivered, answer in self._waiting:
            self.broken = "fatal" if answer is not None else ""
            delivered(None if answer is None else Error(answer), Message())
        self._waiting = []


class World:
    def __init__(self, *answers: Answer, at_once: bool = False) -> None:
        self.answers: Iterator[Answer] = iter(answers)
        self.at_once = at_once
        self.sent: list[Outgoing] = []
        self.made = 0
        self.progress = Progress(7, 4, 30)
        self.delivered = 0

    def make(self) -> Any:
        self.made += 1
        return Target(self)

    def alone(self, letters: str = "dead") -> Alone:
        found = Alone(self.progress, self.make, letters)
        found.send(RECORD, 7, 9, self.deliver)
        return found

    def deliver(self, error: Any, message: Message) -> None:
        assert error is None
        self.delivered += 1
        self.progress.acknowledged(message.offset())

    @property
    def place(self) -> tuple[int, int, int]:
        return self.progress.position, self.progress.after, self.progress.tail


def test_what_the_target_takes_is_no_letter() -> None:
    world = World(None)
    alone = world.alone()

    assert not alone.poll(0)
    assert (world.sent, world.delivered, world.place) == ([RECORD], 1, (8, 8, 41))
    assert (alone.refusal, alone.broken, world.made) == (None, "", 1)


@pytest.mark.parametrize("code", sorted(module.FAULTS))
@pytest.mark.parametrize("at_once", [False, True])
def test_what_is_wrong_with_a_record_makes_it_a_letter(code: int, at_once: bool) -> None:
    world = World(code, None, at_once=at_once)
    alone = world.alone()

    assert not alone.poll(0)
    assert world.place[0] == 7, "the letter is on its way"
    assert alone.poll(0)

    letter = world.sent[1]
    assert (letter.topic, letter.partition, letter.key, letter.value) == ("dead", ANY, b"k", b"value")
    assert letter.timestamp_ms == NOW
    assert letter.headers[:2] == RECORD.headers
    added = {REASON: f"error {code}".encode(), TOPIC: b"t/3", TIMESTAMP: b"5"}
    assert dict(letter.headers[2:]) == added
    assert world.place == (8, 7, 30), "passed, and what comes next follows on what was on the target"
    assert (world.progress.letters, world.progress.records, world.progress.in_flight_bytes) == (1, 0, 0)
    assert not alone.broken


def test_a_letter_that_is_too_large_is_without_its_value_and_states_its_size() -> None:
    world = World(KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.MSG_SIZE_TOO_LARGE, None)
    alone = world.alone()

    assert [alone.poll(0) for _ in range(3)] == [False, False, True]

    letter = world.sent[2]
    assert (letter.key, letter.value) == (b"k", None)
    assert dict(letter.headers)[OMITTED] == b"value 5"
    assert ORIGIN in letter.headers
    assert world.made == 3, "each refusal ends its producer"


@pytest.mark.parametrize(
    ("answers", "letters", "reason", "words"),
    [
        ((10,), "", "RecordRefused", "offset 7: error 10"),
        ((KafkaError.TOPIC_AUTHORIZATION_FAILED,), "dead", "RecordRefused", "offset 7: error 29"),
        ((10, 10, 10), "dead", "RecordRefused", "its dead letter: error 10"),
        ((10, KafkaError.TOPIC_AUTHORIZATION_FAILED), "dead", "RecordRefused", "error 10; its dead letter: error 29"),
        ((10, KafkaError._UNKNOWN_TOPIC), "dead", "RecordRefused", "its dead letter"),
        ((KafkaError._UNKNOWN_PARTITION,), "dead", "TargetPartitionUnknown", "offset 7"),
    ],
)
def test_what_no_letter_can_be_for_stops_at_the_record(
    answers: tuple[int, ...], letters: str, reason: str, words: str
) -> None:
    world = World(*answers)
    alone = world.alone(letters)

    for _ in answers:
        assert not alone.poll(0)

    assert alone.refusal is not None
    assert alone.refusal[0] == reason
    assert words in alone.refusal[1]
    assert (world.place, world.progress.settled, world.progress.read) == ((7, 7, 30), True, 7)


def test_a_producer_whose_end_is_heard_before_the_refusal_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(KafkaError.INVALID_RECORD, None)
    alone = world.alone()
    alone._target.poll, poll = lambda _: None, alone._target.poll  # type: ignore[method-assign]
    alone._target.broken = "fatal"

    assert not alone.poll(0)
    assert alone.broken == ""
    alone._target.poll = poll  # type: ignore[method-assign]
    assert not alone.poll(0), "now the letter is on its way"
    assert alone.poll(0)
    assert (alone.broken, world.progress.letters) == ("", 1)


def test_a_producer_that_ends_and_never_reports_leaves_the_record_in_flight(monkeypatch: pytest.MonkeyPatch) -> None:
    moment = [1.0]
    monkeypatch.setattr(module.time, "monotonic", lambda: moment[0])
    world = World(None)
    alone = world.alone()
    alone._target.poll = lambda _: None  # type: ignore[method-assign]
    alone._target.broken = "fatal"

    alone.poll(0)
    moment[0] += module.REPORT_SECONDS + 1
    alone.poll(0)

    assert (alone.broken, world.progress.settled) == ("fatal", False)


def test_an_end_of_the_producer_that_is_no_refusal_leaves_the_record_in_flight() -> None:
    world = World(KafkaError._PURGE_INFLIGHT)
    alone = world.alone()

    alone.poll(0)

    assert alone.broken
    assert (alone.refusal, world.progress.settled, world.place[0]) == (None, False, 7)
