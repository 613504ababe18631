"""A steady stream through a contestant, watched at the target: how late records are, and how long a hand-over pauses.

Lateness counts from the moment a record is appended to the source's log (its timestamp there, LogAppendTime, which
every contestant keeps) to the moment a consumer of the target has it.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from numpy.typing import NDArray

from bench.mirrors.contestants import Ours, Start
from bench.mirrors.field import DISTINCT, HEADERS, PARTITIONS, RECORD, Field, values
from e2e.stack.process import wait_until
from e2e.stack.server import StackError

SLICE = 0.005
"""Seconds between two handfuls of records."""
LOOK = 0.002
"""Seconds for which the watcher waits for a handful."""
WARM_UP, AFTER = 5.0, 2.0
"""Seconds before anything counts, and after a hand-over that still belong to it."""
SETTLE = 25.0
"""Seconds of another load until a window of ten seconds holds nothing else."""
SKEW = 4.0
"""How much more the partitions of one task get than those of the other."""


class Stream:
    """Writes `rate` bytes a second to the source while its context lasts; `weights` divide them among partitions."""

    def __init__(self, field: Field, topic: str, rate: float) -> None:
        self.weights: Sequence[float] = [1.0] * PARTITIONS
        self._topic, self._rate = topic, rate / RECORD
        self._producer = Producer({"bootstrap.servers": field.source, "linger.ms": 2, "compression.type": "lz4"})
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="stream", daemon=True)

    def _run(self) -> None:
        chance, made = random.Random(1), values()
        began, sent = time.monotonic(), 0
        while not self._stopped.wait(SLICE):
            due = int((time.monotonic() - began) * self._rate)
            for partition in chance.choices(range(PARTITIONS), self.weights, k=due - sent):
                key = b"%016d" % sent
                self._producer.produce(self._topic, made[sent % DISTINCT], key, partition, headers=HEADERS)
                sent += 1
            self._producer.poll(0)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()
        self._producer.flush(30)


@dataclass(frozen=True)
class Seen:
    """Records in the order in which the watcher had them: when (Unix time), of which partition, how late (seconds)."""

    at: NDArray[np.float64]
    partition: NDArray[np.int64]
    late: NDArray[np.float64]

    def longest_gap(self, partition: int, begin: float, end: float) -> float:
        """Seconds of the longest time in [begin, end) without a record of the partition."""
        at = self.at[self.partition == partition]
        inside = at[(at >= begin) & (at < end)]
        return float(np.diff(np.concatenate([[begin], inside, [end]])).max())


class Watcher:
    """Reads the target while its context lasts, from the topic's start."""

    def __init__(self, field: Field, topic: str) -> None:
        self._topic, self._address = topic, field.target
        self._at: list[float] = []
        self._partition: list[int] = []
        self._late: list[float] = []
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, name="watcher", daemon=True)

    def seen(self) -> Seen:
        count = len(self._late)  # filled last
        return Seen(np.array(self._at[:count]), np.array(self._partition[:count]), np.array(self._late[:count]))

    def _run(self) -> None:
        settings = {"bootstrap.servers": self._address, "group.id": "watcher", "enable.auto.commit": False}
        consumer = Consumer({**settings, "fetch.wait.max.ms": 100, "log_level": 0})
        consumer.assign([TopicPartition(self._topic, number, 0) for number in range(PARTITIONS)])
        while not self._stopped.is_set():
            messages = consumer.consume(500, LOOK)
            now = time.time()
            for message in messages:
                self._at.append(now)
                self._partition.append(message.partition() or 0)
                self._late.append(now - message.timestamp()[1] / 1000)
        consumer.close()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopped.set()
        self._thread.join()


@dataclass(frozen=True, slots=True)
class Lateness:
    """Of one contestant in one round, milliseconds; CPU in cores. `kept` is the part of the stream that arrived in the
    time in which it was sent: below one it fell behind, and its lateness has no meaning but that."""

    name: str
    round: int
    p50: float
    p99: float
    longest: float
    cores: float
    kept: float


def lateness(field: Field, start: Start, name: str, number: int, rate: float, seconds: float) -> Lateness:
    """How late records of a steady stream are."""
    topic = f"steady-{name}-{number}"
    field.create(topic, **{"message.timestamp.type": "LogAppendTime"})
    with start(field, topic) as contestant, Watcher(field, topic) as watcher, Stream(field, topic, rate):
        contestant.wait_for(1)
        time.sleep(WARM_UP)  # a stream lasts: how long is what is asked
        begin, cpu = time.time(), contestant.cpu()
        time.sleep(seconds)
        end, cores = time.time(), (contestant.cpu() - cpu) / seconds
        time.sleep(AFTER)
        seen = watcher.seen()
    field.delete(topic)
    late = seen.late[(seen.at >= begin) & (seen.at < end)] * 1000
    if not len(late):
        raise StackError(f"{name} mirrored nothing within {seconds:g} s")
    p50, p99 = np.percentile(late, [50, 99])
    kept = len(late) / (rate / RECORD * seconds)
    return Lateness(name, number, float(p50), float(p99), float(late.max()), cores, kept)


@dataclass(frozen=True, slots=True)
class Pause:
    """The longest time without a record of a partition during one rebalance, milliseconds, and whether it moved."""

    partition: int
    moved: bool
    milliseconds: float


def pauses(field: Field, rate: float, moves: int, report: Callable[[str], None]) -> list[Pause]:
    """Make one of two tasks heavy and ask for a rebalance, so many times in turn."""
    topic = "handed-over"
    field.create(topic, **{"message.timestamp.type": "LogAppendTime"})
    load = {"interval": "1s", "window": "10s", "minTasks": 2, "maxTasks": 2}
    never = {"cooldown": "24h", "onLag": "24h"}
    ours = Ours(field, topic, "EffectivelyOnce", 2, load=load, rebalance=never)
    found: list[Pause] = []
    with ours, Watcher(field, topic) as watcher, Stream(field, topic, rate) as stream:
        ours.wait_for(1)
        if not wait_until(ours.process.all_held_again, timeout=60):
            raise StackError("the mirror's partitions have no task")
        for number in range(moves):
            before = _tasks(ours)
            heavy = sorted(set(before.values()))[number % 2]
            stream.weights = [SKEW if before[each] == heavy else 1.0 for each in range(PARTITIONS)]
            time.sleep(SETTLE)
            begin = time.time()
            ours.process.rebalance()
            if not wait_until(lambda before=before: _moved(ours, before), timeout=30):  # type: ignore[misc]
                report(f"hand-over {number + 1}: nothing had to move")
                continue
            time.sleep(AFTER)
            after, end, seen = _tasks(ours), time.time() - AFTER / 2, watcher.seen()
            for each in range(PARTITIONS):
                gap = 1000 * seen.longest_gap(each, begin, end)
                found.append(Pause(each, before[each] != after[each], gap))
            moved = [f"{each.milliseconds:.0f}" for each in found[-PARTITIONS:] if each.moved]
            report(f"hand-over {number + 1}: {len(moved)} partitions moved, paused for {', '.join(moved)} ms")
    field.delete(topic)
    return found


def _tasks(ours: Ours) -> dict[int, str]:
    """The task that is assigned each partition. StackError without an answer."""
    status = ours.process.status()
    if status is None:
        raise StackError("the mirror does not answer")
    return {each.partition: each.task for each in status.partitions}


def _moved(ours: Ours, before: dict[int, str]) -> bool:
    """Whether partitions are assigned elsewhere, and all are held where they are assigned."""
    status = ours.process.status()
    if status is None or any(each.holder != each.task for each in status.partitions):
        return False
    return any(before[each.partition] != each.task for each in status.partitions)
