"""The history of load over a restart of the driver: written now and then, taken over at the start, never in the way."""

from __future__ import annotations

import time

import pytest

from blockhouse.errors import Retryable
from blockhouse.load.columns import Column
from blockhouse.load.history import Window
from blockhouse.load.kept import KeptHistory
from blockhouse.load.model import PartitionLoad, RateSource, Sample
from blockhouse_mirror.runtime import load_keeping as module
from blockhouse_mirror.runtime.load_keeping import INTERVAL, LoadKeeping
from blockhouse_mirror.runtime.mirrored import Mirrored
from tests.unit.mirror.driving import P, config


class Topic:
    def __init__(self) -> None:
        self.columns: list[Column] = []
        self.writes = 0
        self.fails = False

    def read(self) -> list[Column]:
        if self.fails:
            raise Retryable("no answer")
        return self.columns

    def write(self, columns: list[Column]) -> None:
        if self.fails:
            raise Retryable("no answer")
        self.writes += 1
        self.columns += columns


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    moment = [0.0]
    monkeypatch.setattr(module, "boot_time", lambda: moment[0])
    return moment


def measured(history: KeptHistory) -> None:
    history.add(Sample("S", "test", time.time(), 60, {P: PartitionLoad(1000.0)}))


async def test_a_driver_begins_with_what_the_former_one_measured(now: list[float]) -> None:
    topic, former, history = Topic(), KeptHistory(), KeptHistory()
    keeping = LoadKeeping(Mirrored(config()), former, topic)
    measured(former)

    await keeping.keep()
    await LoadKeeping(Mirrored(config()), history, topic).restore("S")

    rate = history.rate(P, Window(600), time.time(), 1.0)
    assert (rate.bytes, rate.source) == (pytest.approx(1000, rel=0.001), RateSource.HISTORY)


async def test_it_is_written_now_and_then_and_at_the_end(now: list[float]) -> None:
    topic, history = Topic(), KeptHistory()
    keeping = LoadKeeping(Mirrored(config()), history, topic)
    measured(history)

    await keeping.keep()
    now[0] = INTERVAL - 1
    await keeping.keep()
    assert topic.writes == 1
    now[0] = INTERVAL
    await keeping.keep()
    await keeping.keep(last=True)
    assert topic.writes == 3


async def test_what_fails_is_an_error_of_the_status_and_is_written_later(now: list[float]) -> None:
    topic, history, mirrored = Topic(), KeptHistory(), Mirrored(config())
    keeping = LoadKeeping(mirrored, history, topic)
    topic.fails = True
    await keeping.restore("S")
    assert mirrored.errors == {"history": "no answer"}
    measured(history)
    await keeping.keep()
    assert topic.columns == []

    topic.fails = False
    now[0] = INTERVAL
    await keeping.keep()

    assert mirrored.errors == {}
    assert [column.keys for column in topic.columns] == [(P,)]


async def test_without_a_store_nothing_is_kept(now: list[float]) -> None:
    keeping = LoadKeeping(Mirrored(config()), KeptHistory(), None)

    await keeping.restore("S")
    await keeping.keep(last=True)


def test_the_topic_is_the_mirrors_own() -> None:
    assert config().load_topic == ""
    kept = config("load: {history: Topic}\n")
    assert kept.load_topic == "km-m-load"
    assert kept.load_topic in kept.own_topics
