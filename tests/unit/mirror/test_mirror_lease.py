"""One lease of a task from its welcome to its end, between a driver and two clusters that are lists in memory."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from blockhouse.gate.client import GateAddress
from blockhouse_mirror.gate.messages import Assign, Assigned, Bye, FromDriver, FromTask, Released, Stop, Welcome
from blockhouse_mirror.protocol.provenance import HEADER, newest, origin_format
from blockhouse_mirror.work import task as module
from blockhouse_mirror.work.target import Content
from blockhouse_mirror.work.task import MirrorLease, run_leases
from tests.unit.mirror.driving import config

WELCOME = Welcome(
    proof="",
    source_cluster="S",
    target_cluster="T",
    read_tail=False,
    in_flight=1 << 20,
    report_interval=0.05,
    compression="none",
    dead_letters="",
    grant_seconds=60,
)
ASSIGNED = Assigned(
    topic="t",
    partition=0,
    generation=1,
    offset=0,
    epoch=-1,
    tail=0,
    topic_id="t-id",
    target_topic="t",
    tail_cut=False,
    careful_until=-1,
)


class Message:
    def __init__(self, offset: int, headers: list[tuple[str, bytes | None]] | None = None) -> None:
        self._offset, self._headers = offset, headers

    def topic(self) -> str:
        return "t"

    def partition(self) -> int:
        return 0

    def error(self) -> None:
        return None

    def offset(self) -> int:
        return self._offset

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        return self._headers

    def leader_epoch(self) -> int:
        return 0

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_000

    def key(self) -> bytes:
        return b"k"

    def value(self) -> None:
        return None

    def __len__(self) -> int:
        return 1


class World:
    """The gate, the source and the target of one lease; it is stopped when so many records are on the target."""

    def __init__(self, messages: list[Message], records: int) -> None:
        self.messages, self.records = messages, records
        self.orders: queue.SimpleQueue[FromDriver | None] = queue.SimpleQueue()
        self.orders.put(Assign(partitions=(ASSIGNED,)))
        self.answers: list[FromTask] = []
        self.copied: list[list[tuple[str, Any]]] = []
        self.callbacks: list[Any] = []
        self.welcome = WELCOME

    # --- as the gate
    def messages_of_driver(self) -> Iterator[FromDriver]:
        while (order := self.orders.get()) is not None:
            yield order

    def send(self, message: FromTask) -> None:
        self.answers.append(message)
        if isinstance(message, Bye):
            self.orders.put(None)

    def close(self) -> None:
        pass


class Gate:
    def __init__(self, world: World) -> None:
        self.welcome, self.send, self.close = world.welcome, world.send, world.close
        self.messages = world.messages_of_driver


class Source:
    def __init__(self, world: World) -> None:
        self._world = world

    def add(self, places: Any) -> None:
        pass

    def remove(self, keys: Any) -> None:
        pass

    def read(self, most: int, seconds: float) -> list[Message]:
        found, self._world.messages = self._world.messages, []
        return found

    def end(self, key: Any) -> int:
        return -1

    def close(self) -> None:
        pass


class Target:
    broken = ""

    def __init__(self, world: World) -> None:
        self._world = world

    def send(self, topic: str, partition: int, records: Sequence[Content], delivered: Any) -> None:
        for number, (_, _, _, headers) in enumerate(records, 1):
            self._world.callbacks.append((delivered if number == len(records) else None, headers))

    def poll(self, seconds: float) -> None:
        for delivered, headers in self._world.callbacks:
            if delivered is not None:
                delivered(None, Message(len(self._world.copied)))
            self._world.copied.append(headers)
        self._world.callbacks = []
        if 0 <= self._world.records <= len(self._world.copied):
            self._world.records = -1
            self._world.orders.put(Stop())

    def purge(self) -> None:
        pass

    def learn(self, topic: str, seconds: float) -> None:
        pass


def run(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "GateConnection", lambda *_, **__: Gate(world))
    monkeypatch.setattr(module, "Source", lambda *_: Source(world))
    monkeypatch.setattr(module, "Target", lambda *_: Target(world))
    settings = config()
    lease = MirrorLease("m", "task0", 1, 1, GateAddress("127.0.0.1", 1, b""), settings.source, settings.target)
    list(run_leases([lease]))


def test_what_came_from_the_target_is_not_mirrored_back(monkeypatch: pytest.MonkeyPatch) -> None:
    from_target = (HEADER, origin_format("T", "x", 0) % 7)
    from_elsewhere = (HEADER, origin_format("R", "y", 0) % 9)
    world = World([Message(0), Message(1, [from_target]), Message(2, [from_elsewhere, ("x", b"1")])], records=2)

    run(world, monkeypatch)

    origins = [newest(headers) for headers in world.copied]
    assert [(o.cluster, o.offset, o.after) for o in origins if o] == [("S", 0, 0), ("S", 2, 1)]
    assert world.copied[1][:2] == [from_elsewhere, ("x", b"1")], "headers are kept, the hop is added"


def test_it_releases_what_it_has_when_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World([Message(0), Message(1)], records=2)

    run(world, monkeypatch)

    released = next(each for each in world.answers if isinstance(each, Released))
    assert (released.generation, released.offset, released.tail) == (1, 2, 2)
    assert isinstance(world.answers[-1], Bye)


def test_a_lease_that_has_ended_leaves_no_clock_behind_that_ends_the_next_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spark gives the same process to the next lease."""
    run(World([Message(0)], records=1), monkeypatch)

    for thread in threading.enumerate():
        if thread.name == "grant-watch":
            thread.join(60.0)
            assert not thread.is_alive()
