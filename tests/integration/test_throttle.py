"""Throttles on a real cluster of three brokers: copies keep to the rate, what cannot end is reported, nothing is left.

Partition 0 of a topic moves from brokers 1 and 2 to 3 and 2, while records are produced beside it.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent
from blockhouse.fleet.execution import Pace, execute
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.throttle_context import Context
from blockhouse.fleet.throttle_guard import IntervalGuard
from blockhouse.fleet.throttle_inputs import FixedRate
from blockhouse.fleet.throttle_store import FileStore
from blockhouse.fleet.throttling import LISTS, RATES, Throttler, toward
from blockhouse.placement.model import PartitionMap
from blockhouse.throttle.model import Event, Role, Settings
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from e2e.stack.process import wait_until
from tests.integration.throttled_moves import (
    BROKERS,
    MB,
    SMALL_FETCHES,
    Writer,
    create,
    is_left,
    settings_left,
    size_on,
)

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaClusterServers]:
    with kafka_cluster("throttle", tmp_path_factory.mktemp("throttle"), dict.fromkeys(BROKERS, SMALL_FETCHES)) as up:
        yield up


@pytest.fixture
def fleet(kafka: KafkaClusterServers) -> Iterator[KafkaFleet]:
    with KafkaFleet(KafkaCluster(name="throttle", bootstrap_servers=kafka.bootstrap)) as fleet:
        yield fleet


def guard_of(
    fleet: KafkaFleet,
    store: FileStore,
    plan: PartitionMap,
    rate: int,
    show: Any = lambda _: None,
    interval: float = 2.0,
) -> IntervalGuard:
    context = Context(
        store=FixedRate(store, rate), settings=Settings(), clock=time.monotonic, wall=time.time, report=show
    )
    return IntervalGuard(Throttler(fleet, context, toward(plan)), time.monotonic, interval)


def test_a_copy_keeps_to_the_rate_and_nothing_is_left(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path
) -> None:
    rate, megabytes = 6 * MB, 90
    plan = create(kafka, fleet, "kept", megabytes)
    (key,) = plan
    fleet.change_topic("kept", {Role.FOLLOWER.list_setting: "0:2"})  # another tool's
    store = FileStore(tmp_path / "record.json", fleet.cluster_id())
    points: list[tuple[float, float]] = []
    for progress in execute(fleet, plan, time.sleep, Pace(), guard_of(fleet, store, plan, rate)):
        if progress.moving:
            points.append((time.monotonic(), size_on(fleet, key, 3)))
            found = fleet.topic_settings(["kept"], LISTS)["kept"]
            assert {"0:1", "0:2"} == set(found[Role.LEADER.list_setting].value.split(","))
            assert {"0:2", "0:3"} == set(found[Role.FOLLOWER.list_setting].value.split(","))
    inside = [(at, size) for at, size in points if 0.15 * megabytes * MB < size < 0.95 * megabytes * MB]
    (began, first), (ended, last) = inside[0], inside[-1]
    measured = (last - first) / (ended - began)
    assert len(inside) >= 4, points
    assert measured == pytest.approx(rate, rel=0.25), points
    assert fleet.partitions()[key].replicas == (3, 2)
    left = settings_left(fleet, "kept")
    assert left.keys() == {"kept"}
    assert {name: found.value for name, found in left["kept"].items()} == {Role.FOLLOWER.list_setting: "0:2"}
    assert not store.ownership()


def test_a_move_that_is_written_faster_than_its_throttle_is_reported_within_two_intervals(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path
) -> None:
    plan = create(kafka, fleet, "stalled", 20)
    (key,) = plan
    store = FileStore(tmp_path / "record.json", fleet.cluster_id())
    events: list[tuple[float, Event]] = []
    writer = Writer(kafka.bootstrap, "stalled", 4 * MB)
    interval, rate = 3.0, 1 * MB

    def stop_soon(seconds: float) -> None:
        if any(event.reason == "ThrottleStalled" for _, event in events) or time.monotonic() - began > 60:
            raise KeyboardInterrupt
        time.sleep(seconds)

    try:
        guard = guard_of(fleet, store, plan, rate, lambda e: events.append((time.monotonic(), e)), interval)
        began = time.monotonic()
        with pytest.raises(KeyboardInterrupt):
            for _ in execute(fleet, plan, stop_soon, Pace(), guard):
                pass
        stalls = [(at, event) for at, event in events if event.reason == "ThrottleStalled"]
        assert stalls, events
        at, event = stalls[0]
        assert at - began < 2 * interval + 3, "an interval and a half second's look is needed to measure writes at all"
        assert event.warning
        assert "1 MB/s possible" in event.text
        needed = float(event.text.partition(" MB/s needed")[0].split()[-1])
        assert needed == pytest.approx(1.2 * 4, rel=0.3), event.text
    finally:
        writer.stop()
    assert fleet.moves()
    for _ in execute(fleet, plan, time.sleep, Pace(), guard_of(fleet, store, plan, 60 * MB)):
        pass
    assert is_left(fleet, "stalled")
    assert fleet.partitions()[key].in_sync == {2, 3}


class Killed(BaseException):
    """The process ended here."""


class Mortal:
    """A fleet whose process dies before its n-th change."""

    def __init__(self, fleet: KafkaFleet, changes: int) -> None:
        self._fleet = fleet
        self._left = changes

    def __getattr__(self, name: str) -> Any:
        return getattr(self._fleet, name)

    def _die(self) -> None:
        if self._left == 0:
            raise Killed
        self._left -= 1

    def change_topic(self, topic: str, values: Mapping[str, str], removed: Any = ()) -> None:
        self._die()
        self._fleet.change_topic(topic, values, removed)

    def change_broker(self, broker: int, values: Mapping[str, str], removed: Any = ()) -> None:
        self._die()
        self._fleet.change_broker(broker, values, removed)

    def reassign(self, targets: Any) -> Any:
        self._die()
        return self._fleet.reassign(targets)


def test_a_process_that_dies_at_any_change_leaves_a_throttled_move_or_none_and_the_next_cleans_up(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path
) -> None:
    plan = create(kafka, fleet, "mortal", 12)
    back = PartitionMap(dict.fromkeys(plan, (1, 2)))
    deaths = 0
    for index in range(20):
        mortal: Any = Mortal(fleet, index)
        desired = plan if index % 2 == 0 else back
        store = FileStore(tmp_path / "record.json", fleet.cluster_id())
        try:
            for _ in execute(
                mortal,
                desired,
                lambda _: time.sleep(0.2),
                Pace(),
                guard_of(mortal, store, desired, 4 * MB, interval=0.5),
            ):
                pass
        except Killed:
            deaths += 1
            if fleet.moves():
                lists, rates = fleet.topic_settings(["mortal"], LISTS), fleet.broker_settings(BROKERS, RATES)
                arriving = next(iter(fleet.moves().values())).adding - next(iter(fleet.partitions().items()))[1].in_sync
                still = [b for b in arriving if size_on(fleet, next(iter(plan)), b) < 11 * MB]
                for broker in still:
                    assert f"0:{broker}" in lists["mortal"][Role.FOLLOWER.list_setting].value
                    assert Role.FOLLOWER.rate_setting in rates[broker]
        for _ in execute(
            fleet, desired, lambda _: time.sleep(0.2), Pace(), guard_of(fleet, store, desired, 40 * MB, interval=0.5)
        ):
            pass
        assert is_left(fleet, "mortal"), f"died before change {index}"
        assert not store.ownership()
    assert deaths >= 8, "each change was met at least once"


def test_a_destination_that_dies_is_left_out_and_gets_the_present_rate_when_it_returns(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path
) -> None:
    plan = create(kafka, fleet, "dead", 60)
    (key,) = plan
    store = FileStore(tmp_path / "record.json", fleet.cluster_id())
    context = Context(FixedRate(store, 2 * MB), Settings(), time.monotonic, time.time)
    throttler = Throttler(fleet, context, toward(plan))
    throttler.before_start(plan)
    assert fleet.reassign(plan) == {}
    assert wait_until(lambda: size_on(fleet, key, 3) > 0, timeout=60)
    kafka.brokers[2].kill()
    assert wait_until(lambda: 3 not in fleet.brokers(), timeout=60)
    faster = Throttler(fleet, Context(FixedRate(store, 3 * MB), Settings(), time.monotonic, time.time), toward(plan))
    assert faster.round()
    assert (3, Role.FOLLOWER) in store.ownership().rates
    kafka.brokers[2].start()
    assert wait_until(lambda: 3 in fleet.brokers(), timeout=60)
    assert fleet.broker_settings([3], RATES)[3][Role.FOLLOWER.rate_setting].value == "2000000", "what it came back with"

    def has_the_present_rate() -> bool:
        """A broker that has just returned answers for a moment with the settings it had."""
        faster.round()
        return fleet.broker_settings([3], RATES)[3][Role.FOLLOWER.rate_setting].value == "3000000"

    assert wait_until(has_the_present_rate, timeout=60, interval=1.0)
    assert wait_until(lambda: not fleet.moves(), timeout=90)
    assert wait_until(lambda: not faster.round(), timeout=60, interval=0.5)
    assert is_left(fleet, "dead")


def test_a_rate_that_kafka_refuses_starts_nothing(
    fleet: KafkaFleet, kafka: KafkaClusterServers, tmp_path: Path
) -> None:
    with pytest.raises(Permanent, match=r"settings of broker 1 .*leader.replication.throttled.rate"):
        fleet.change_broker(1, {Role.LEADER.rate_setting: "-5"})
    plan = create(kafka, fleet, "refused", 1)
    store = FileStore(tmp_path / "record.json", fleet.cluster_id())
    with pytest.raises(Permanent, match="throttled"):
        for _ in execute(fleet, plan, time.sleep, Pace(), guard_of(fleet, store, plan, -5)):
            pass
    assert fleet.moves() == {}
    assert is_left(fleet, "refused")
