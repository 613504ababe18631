"""What goes wrong with autothrottle, one situation each: with the fault (its own recorded behaviour, through the
parity code) and without it (ours, given the same situation).
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from blockhouse.placement.model import TopicPartition
from blockhouse.throttle.kafka_kit import sequence
from blockhouse.throttle.model import (
    Capacity,
    Event,
    ForgetOverride,
    Load,
    MoveSeen,
    Override,
    Overrides,
    Role,
    SetList,
    SetRate,
    Settings,
)
from blockhouse.throttle.rates import Why
from tests.unit.throttle.test_kafka_kit import cases
from tests.unit.throttle.throttle_world import World, move

MB = 1_000_000
KEY = TopicPartition("t", 0)
SOURCE, DESTINATION = (1, Role.LEADER), (3, Role.FOLLOWER)
CONFIG = {
    "min_rate": 10, "max_tx_pct": 90, "max_rx_pct": 90, "change_threshold_pct": 10, "failure_threshold": 1,
    "cleanup_after": 60, "capacities": {"m": 100},
}  # fmt: skip
ABSURD = (
    Load(float("nan"), float("nan")),
    Load(100 * 50e6, 100 * 20e6),
    Load(0.0, 0.0, 5e6, 5e6),
    Load(-1.0, -1.0),
    Load(float("inf"), float("inf")),
    Load(None, None),
    Load(50e6, 20e6, float("nan"), float("nan")),
    Load(50e6, 20e6, age=121.0),
)
"""NaN, a hundred times what is true, nothing though something was copied, less than nothing, missing, stale."""
MOVING = {"t": {"0": {"leader": 1, "isr": [1, 2], "target": [1, 3]}}}


def original(*intervals: dict[str, Any]) -> list[dict[str, Any]]:
    """What the tool does in these intervals, of which each may leave out what does not matter."""
    base = {
        "moving": MOVING, "metrics": {}, "metrics_error": False, "override": {"rate": 0, "autoremove": False},
        "broker_overrides": {},
    }  # fmt: skip
    return sequence({"config": CONFIG, "intervals": [{**base, **interval} for interval in intervals]})


def named(id: str) -> list[dict[str, Any]]:
    """A recorded case, run through the parity code."""
    case = next(case for case in cases("autothrottle-named.jsonl") if case["id"] == id)
    return sequence(case)


def metrics(tx: float = 50.0, rx: float = 20.0, *brokers: int) -> dict[str, Any]:
    return {str(id): {"type": "m", "tx": tx, "rx": rx} for id in brokers or (1, 2, 3)}


def ours(**settings: Any) -> World:
    """Partition t/0 moves from brokers 1, 2 to 1, 3; the whole is measured; every broker carries 100 MB/s."""
    given = Settings(capacity=Capacity(100e6), **settings)
    world = World(given, live={1, 2, 3}, moves={KEY: move((1, 2, 3), [3])})
    world.loads = {id: Load(50e6, 20e6, 0.0, 0.0) for id in (1, 2, 3)}
    return world


def test_1_an_unknown_capacity_means_the_minimum_and_no_unthrottled_move() -> None:
    unknown = {**metrics(), "3": {"type": "new-type", "tx": 50.0, "rx": 20.0}}
    assert [interval["set"] for interval in original({"metrics": unknown}, {"metrics": unknown})] == [{}, {}]

    world = ours()
    world.settings = replace(world.settings, capacity=Capacity(None, {1: 100e6, 2: 100e6}))
    outcome = world.settle()
    assert world.rates[DESTINATION] == 10 * MB
    assert [e.reason for e in outcome.effects if isinstance(e, Event) and e.warning] == ["CapacityUnknown"]
    world.settle()
    assert world.rates[SOURCE] == 20 * MB, "the gap of one broker does not touch another, which rises"


def test_2_missing_figures_are_a_failure_of_their_broker_then_its_minimum() -> None:
    silent = {"metrics": metrics(50.0, 20.0, 1, 2)}
    assert [i["failures"] for i in original({"metrics": metrics()}, silent, silent, silent)] == [0, 0, 0, 0]
    assert original({"metrics": metrics()}, silent, silent, silent)[3]["set"] == {}, "the old rate, indefinitely"

    world = ours()
    for _ in range(6):
        world.settle()
    assert world.rates[DESTINATION] > 50 * MB
    del world.loads[3]
    world.settle()
    assert world.known.failures == {3: 1}
    world.settle()
    assert world.rates[DESTINATION] == 10 * MB
    assert world.rates[SOURCE] == 45 * MB


def test_3_the_first_interval_without_figures_is_throttled_before_anything_moves() -> None:
    nothing = {"metrics_error": True}
    assert original(nothing)[0]["set"] == {}

    world = ours()
    starting = dict(world.moves)
    world.moves, world.loads = {}, {}
    world.carry_out(world.decide(starting, adjust=False))
    assert world.rates[SOURCE] == world.rates[DESTINATION] == 10 * MB
    assert world.named(KEY, 3, Role.FOLLOWER)
    assert world.named(KEY, 1, Role.LEADER)


def test_4_an_override_is_exact_and_is_written_again_after_it_was_removed() -> None:
    def asked(rate: int) -> dict[str, Any]:
        return {"moving": {}, "broker_overrides": {"2": {"rate": rate, "autoremove": False}}}

    again = original(asked(50), asked(0), {"moving": {}}, asked(50))
    assert again[0]["set"], "set at first"
    assert again[3]["set"] == {}, "and not the second time"
    assert original(asked(50), asked(53))[1]["set"] == {}, "a change of 6 % is ignored"

    world = ours()
    for rate in (50 * MB, 53 * MB, None, 53 * MB):
        world.overrides = Overrides(None, {3: Override(rate)} if rate else {})
        world.settle()
        if rate:
            assert world.rates[DESTINATION] == rate


@pytest.mark.parametrize("override", [None, 20 * MB])
def test_5_a_throttle_below_what_is_written_is_reported_with_both_rates(override: int | None) -> None:
    world = ours()
    world.write_rates = {KEY: 60e6}
    world.overrides = Overrides(Override(override)) if override else Overrides()
    stalls = [e for e in world.settle().effects if isinstance(e, Event) and e.reason == "ThrottleStalled"]
    assert "72 MB/s needed" in stalls[0].text
    assert ("20 MB/s possible" if override else "50 MB/s possible") in stalls[0].text
    assert not [e for e in world.settle().effects if isinstance(e, Event)], "it is reported once"


def test_5_the_floor_is_reached_where_capacity_is_free_and_never_at_the_cost_of_clients() -> None:
    """Capacity 100, clients 85, writes 60: 72 would hurt the clients; capacity 100, clients 10: 72 is right."""
    for other, expected in ((85e6, 13.5 * MB), (10e6, 81 * MB), (25e6, 72 * MB)):
        world = ours()
        world.loads = {id: Load(other, other, 0.0, 0.0) for id in (1, 2, 3)}
        world.write_rates = {KEY: 60e6}
        for _ in range(8):
            world.settle()
        assert world.rates[SOURCE] == expected


def test_6_replication_that_rests_is_not_taken_for_room() -> None:
    rates = original({"metrics": metrics(10.0)}, {"metrics": metrics(60.0)})
    assert rates[0]["set"]["1"]["leader_bytes"] == 81 * MB
    assert rates[1]["set"]["1"]["leader_bytes"] == 90 * MB, "clients use 60 of 100 and replication may use 90"

    world = ours()
    world.loads = {id: Load(10e6, 10e6, 0.0, 0.0) for id in (1, 2, 3)}
    for _ in range(5):
        world.settle()
    assert world.rates[SOURCE] == 80 * MB, "a rise to 81 is not worth writing"
    world.loads = {id: Load(60e6, 60e6, 0.0, 0.0) for id in (1, 2, 3)}
    world.settle()
    assert world.rates[SOURCE] == 36 * MB, "at once"


def test_7_lists_and_rates_of_others_survive() -> None:
    world = ours()
    world.someone_adds(("t", Role.FOLLOWER), "5:2")
    world.someone_adds(("u", Role.LEADER), "*")
    world.someone_sets_rate((2, Role.LEADER), 7_000_001)
    world.settle()
    assert world.lists["t", Role.FOLLOWER] == {"5:2", "0:3"}
    world.moves.clear()
    world.settle()
    assert world.lists == {("t", Role.FOLLOWER): {"5:2"}, ("u", Role.LEADER): {"*"}}
    assert world.rates == {(2, Role.LEADER): 7_000_001}


def test_9_a_broker_is_released_when_its_replicas_are_in_sync_though_others_still_move() -> None:
    slow = {"u": {"0": {"leader": 2, "isr": [2], "target": [2, 4]}}}
    both = {**MOVING, **slow}
    rates = original({"moving": both, "metrics": metrics(50, 20, 1, 2, 3, 4)}, {"moving": slow})
    assert rates[0]["set"]["3"]["follower_bytes"] > 0
    assert rates[1]["set"] == {}, "broker 3 keeps its rate until everything is finished"

    world = ours()
    world.live.add(4)
    world.moves[TopicPartition("u", 0)] = MoveSeen((2, 4), frozenset({4}), 2, frozenset({2}))
    world.settle()
    world.in_sync(KEY, 3)
    world.settle()
    assert {broker for broker, _ in world.rates} == {2, 4}
    assert set(world.lists) == {("u", Role.LEADER), ("u", Role.FOLLOWER)}


def test_10_a_new_leader_in_the_middle_of_a_move_is_throttled_already() -> None:
    world = ours()
    world.settle()
    assert world.named(KEY, 2, Role.LEADER)
    assert (2, Role.LEADER) in world.rates


def test_11_a_list_that_is_no_longer_as_it_should_be_is_written_again() -> None:
    world = ours()
    world.settle()
    world.lists.clear()
    outcome = world.settle()
    assert {e.role for e in outcome.effects if isinstance(e, SetList)} == set(Role)


def test_12_an_override_elsewhere_keeps_nothing_in_place() -> None:
    assert named("broker-override-outside-keeps-all-throttles")[1]["set"] == {}

    world = ours()
    world.live.add(4)
    world.overrides = Overrides(None, {4: Override(50 * MB)})
    world.settle()
    world.moves.clear()
    world.settle()
    assert world.rates == {}
    assert world.lists == {}


def test_an_override_ends_with_its_reassignment_or_its_time() -> None:
    world = ours()
    world.overrides = Overrides(
        Override(30 * MB, auto_remove=True), {1: Override(20 * MB, expires_at=100.0), 2: Override(25 * MB)}
    )
    world.settle()
    assert (world.rates[1, Role.LEADER], world.rates[3, Role.FOLLOWER]) == (20 * MB, 30 * MB)
    world.at = 100.0
    outcome = world.settle()
    assert [e.broker for e in outcome.effects if isinstance(e, ForgetOverride)] == [1]
    assert world.rates[1, Role.LEADER] == 30 * MB
    world.moves.clear()
    ended = [e.broker for e in world.settle().effects if isinstance(e, ForgetOverride)]
    assert ended == [1, None]


def test_a_broker_that_returns_with_an_old_throttle_gets_the_present_one_or_none() -> None:
    world = ours()
    world.settle()
    world.live.discard(3)
    world.overrides = Overrides(Override(15 * MB))
    outcome = world.settle()
    assert not [e for e in outcome.effects if isinstance(e, SetRate) and e.broker == 3]
    assert world.rates[DESTINATION] == 10 * MB, "the old one, which it comes back with"
    world.live.add(3)
    world.settle()
    assert world.rates[DESTINATION] == 15 * MB
    world.live.discard(3)
    world.moves.clear()
    world.settle()
    world.settle()
    assert world.stored.rates.keys() == {DESTINATION}
    world.live.add(3)
    world.settle()
    assert not world.rates
    world.settle()
    assert not world.stored, "once it is seen to be gone"


def test_absurd_figures_are_missing_figures() -> None:
    for load in ABSURD:
        world = ours(failure_threshold=0)
        for _ in range(3):
            world.settle()
        assert world.rates[SOURCE] > world.settings.min_rate
        assert world.rates[DESTINATION] > world.settings.min_rate
        world.loads = dict.fromkeys((1, 2, 3), load)
        world.settle()
        assert world.decide().decisions[SOURCE].why is Why.NO_FIGURES, load
        assert world.decide().decisions[DESTINATION].why is Why.NO_FIGURES, load
        assert world.rates[SOURCE] == world.rates[DESTINATION] == world.settings.min_rate
