"""A throttler between a cluster and a source of load, both in memory: what it takes the source's figures for."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field

import pytest

from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.model import Move, PartitionState, ReplicaLog, Setting, SettingSource, Storage
from blockhouse.fleet.throttle_context import Context, Tally
from blockhouse.fleet.throttling import Throttler
from blockhouse.load.model import BrokerLoad, Sample
from blockhouse.placement.model import Broker, ReplicaSet, TopicPartition
from blockhouse.throttle.model import Capacity, Event, Overrides, Ownership, Role, Settings

KEY = TopicPartition("t", 0)
NOW = 1_790_000_000.0
MB = 1_000_000


@dataclass
class MovingCluster:
    """Partition t/0 moves from brokers 1, 2 to 3, 2, and never ends."""

    settings: dict[object, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))
    refuses: bool = False
    arrived: float = 1e6

    def brokers(self) -> dict[int, Broker]:
        return {id: Broker(id) for id in (1, 2, 3)}

    def partitions(self) -> dict[TopicPartition, PartitionState]:
        return {KEY: PartitionState((3, 2, 1), 1, frozenset({1, 2}))}

    def storage(self) -> Storage:
        return Storage(
            {}, {}, {(KEY, id): ReplicaLog(1e9, 0) for id in (1, 2)} | {(KEY, 3): ReplicaLog(self.arrived, 9)}
        )

    def moves(self) -> dict[TopicPartition, Move]:
        return {KEY: Move((3, 2, 1), frozenset({3}), frozenset({1}))}

    def require_visible(self, topics: Collection[str]) -> None:
        assert not topics

    def reassign(self, targets: Mapping[TopicPartition, ReplicaSet | None]) -> dict[TopicPartition, str]:
        raise AssertionError(targets)

    def elect_preferred_leaders(self, partitions: Collection[TopicPartition]) -> None:
        raise AssertionError(partitions)

    def topic_settings(self, topics: Collection[str], only: Collection[str]) -> dict[str, dict[str, Setting]]:
        return {topic: self._given(topic, only, SettingSource.TOPIC) for topic in topics}

    def broker_settings(self, brokers: Collection[int], only: Collection[str]) -> dict[int, dict[str, Setting]]:
        return {id: self._given(id, only, SettingSource.BROKER) for id in brokers}

    def change_topic(self, topic: str, values: Mapping[str, str], removed: Collection[str] = ()) -> None:
        self._change(topic, values, removed)

    def change_broker(self, broker: int, values: Mapping[str, str], removed: Collection[str] = ()) -> None:
        self._change(broker, values, removed)

    def _given(self, of: object, only: Collection[str], source: SettingSource) -> dict[str, Setting]:
        return {name: Setting(value, source) for name, value in self.settings[of].items() if name in only}

    def _change(self, of: object, values: Mapping[str, str], removed: Collection[str]) -> None:
        if self.refuses:
            raise Permanent("no", reason="Refused")
        self.settings[of] |= values
        for name in removed:
            self.settings[of].pop(name, None)

    @property
    def rate(self) -> int:
        """Of the destination."""
        return int(self.settings[3][Role.FOLLOWER.rate_setting])


@dataclass
class Resting(MovingCluster):
    """The same before it moves; written to."""

    written: float = 1e9

    def partitions(self) -> dict[TopicPartition, PartitionState]:
        return {KEY: PartitionState((1, 2), 1, frozenset({1, 2}))}

    def storage(self) -> Storage:
        return Storage({}, {}, {(KEY, id): ReplicaLog(self.written, 0) for id in (1, 2)})

    def moves(self) -> dict[TopicPartition, Move]:
        return {}


class Record:
    """What is ours, in memory."""

    def __init__(self) -> None:
        self._owned = Ownership()

    def exclusive(self) -> nullcontext[None]:
        return nullcontext()

    def ownership(self) -> Ownership:
        return self._owned

    def overrides(self) -> Overrides:
        return Overrides()

    def remember(self, ownership: Ownership) -> None:
        self._owned = ownership

    def forget_override(self, broker: int | None) -> None:
        raise AssertionError(broker)


@dataclass
class Clocks:
    """A steady clock and the time of day, which can be set."""

    steady: float = 0.0
    wall: float = NOW

    def pass_(self, seconds: float) -> None:
        self.steady += seconds
        self.wall += seconds


class Source:
    """Measures little load, until it is silent."""

    name = "test"

    def __init__(self, clocks: Clocks) -> None:
        self._clocks = clocks
        self.error: Exception | None = None
        self.load = BrokerLoad(20e6, 20e6, 0.0, 0.0)

    def sample(self) -> Sample:
        if self.error is not None:
            raise self.error
        loads = dict.fromkeys((1, 2, 3), self.load)
        return Sample("c", self.name, self._clocks.wall, 30.0, brokers=loads)


@dataclass
class Stage:
    """A throttler whose rate has risen with the figures of its source."""

    clocks: Clocks = field(default_factory=Clocks)
    cluster: MovingCluster = field(default_factory=MovingCluster)
    events: list[Event] = field(default_factory=list)
    tally: Tally = field(default_factory=Tally)

    def __post_init__(self) -> None:
        self.source = Source(self.clocks)
        settings = Settings(capacity=Capacity(100e6), window=60.0)
        context = Context(
            Record(), settings, lambda: self.clocks.steady, lambda: self.clocks.wall, self.source,
            report=self.events.append, tally=self.tally,
        )  # fmt: skip
        self.throttler = Throttler(self.cluster, context)
        self.rounds(6)
        assert self.cluster.rate == 72 * MB

    def rounds(self, count: int) -> None:
        for _ in range(count):
            self.throttler.round()
            self.clocks.pass_(30.0)


@pytest.mark.parametrize("jump", [0.0, -3600.0, 3600.0], ids=["none", "back", "forward"])
def test_figures_of_a_silent_source_grow_old_whatever_the_time_of_day_does(jump: float) -> None:
    stage = Stage()
    stage.source.error = Retryable("no answer")
    stage.clocks.wall += jump
    stage.rounds(6)
    assert stage.cluster.rate == 10 * MB, "the minimum, two windows and an interval after its last answer"


@pytest.mark.parametrize("jump", [-3600.0, 3600.0])
def test_a_clock_that_jumps_costs_no_figures_of_a_source_that_answers(jump: float) -> None:
    stage = Stage()
    stage.clocks.wall += jump
    stage.rounds(2)
    assert stage.cluster.rate == 72 * MB


def test_a_source_that_gives_nothing_is_reported_once_and_blocks_nothing() -> None:
    stage = Stage()
    for error in (Retryable("no answer"), Permanent("no such file", reason="InvalidLoadFile")):
        stage.events.clear()
        stage.source.error = error
        stage.rounds(3)
        assert [e.text for e in stage.events if e.reason == "LoadUnavailable"] == [
            f"the source of load test gives no figures: {error}"
        ]
        stage.source.error = None
        stage.rounds(1)


def test_a_broker_that_copies_and_reports_nothing_gets_the_minimum() -> None:
    stage = Stage()
    stage.source.load = BrokerLoad(0.0, 0.0, 0.0, 0.0)
    stage.rounds(3)
    assert stage.cluster.rate == 90 * MB, "nothing was copied, so nothing may have been received"
    for _ in range(3):
        stage.cluster.arrived += 30 * 10e6
        stage.rounds(1)
    assert stage.cluster.rate == 10 * MB
    assert stage.tally.failures[3, "missing"] >= 2


def test_writes_and_failures_are_counted() -> None:
    stage = Stage()
    tally = stage.tally
    assert tally.writes["rate", "ok"] >= 3
    assert tally.writes["list", "ok"] == 2
    assert not tally.failures
    stage.source.error = Retryable("no answer")
    stage.rounds(6)
    assert tally.failures == {(id, "stale"): 2 for id in (1, 2, 3)}
    stage.cluster.refuses = True
    stage.source.error = None
    with pytest.raises(Permanent):
        stage.rounds(1)
    assert tally.writes["rate", "failed"] == 1


def test_a_forecast_names_what_would_stall_and_changes_nothing() -> None:
    stage = Stage()
    cluster = Resting()
    context = Context(
        Record(), Settings(capacity=Capacity(100e6), max_rate=1e6, min_rate=1e6),
        lambda: stage.clocks.steady, lambda: stage.clocks.wall, stage.source,
    )  # fmt: skip
    throttler = Throttler(cluster, context)
    assert not any(row.stalled for row in throttler.forecast({KEY: (3, 2)})), "nothing is known of its writes yet"
    stage.clocks.pass_(30.0)
    cluster.written += 30 * 4e6

    found = {row.broker: row for row in throttler.forecast({KEY: (3, 2)}) if row.role is Role.FOLLOWER}

    assert found.keys() == {3}
    assert found[3].stalled
    assert (found[3].floor, found[3].possible) == (pytest.approx(1.2 * 4e6), 1e6)
    assert not any(cluster.settings.values())
    assert throttler.rows == (), "a metric would be of something that does not move"
