"""An outage of a whole shard is judged by the other's lag, and only where nothing else explains it."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from e2e.chaos.injecting import Injected
from e2e.chaos.isolation import isolated, outages
from e2e.chaos.layout import Layout
from e2e.chaos.observing import Sample
from e2e.chaos.scenario import Fault, Kind, Scenario

LAYOUT, RATE = Layout(2, 2), 100.0
SCENARIOS = Path(__file__).parents[3] / "e2e" / "chaos" / "scenarios"


def injected(target: str, began: float = 10, seconds: float = 20, kind: Kind = Kind.KILL, error: str = "") -> Injected:
    return Injected(Fault(at=began, kind=kind, target=target), began, began + seconds, target, error)


def samples(first: int, second: int, before: int = 20) -> list[Sample]:
    """One a second until 40; from 11 to 30 the shards' lags are these, and before 10 the second's is `before`."""
    during = [Sample(float(at), (first, second), {}) for at in range(12, 31)]
    quiet = [Sample(float(at), (20, before if at < 10 else 20), {}) for at in (*range(12), *range(31, 40))]
    return sorted([*quiet, *during], key=lambda sample: sample.at)


DOWN = injected("shard-1")


def judged(faults: list[Injected], seen: list[Sample], **more: bool) -> list[bool]:
    return [check.holds for check in isolated(faults, seen, LAYOUT, RATE, **more)]


def test_a_shard_that_continues_while_the_other_is_down_is_isolated() -> None:
    (check,) = isolated([DOWN], samples(2000, 250), LAYOUT, RATE)
    assert check.holds
    assert check.found == "lag at most 250, allowed 300 messages, in 1 outages"


def test_a_shard_that_stands_still_with_the_other_is_not() -> None:
    assert judged([DOWN], samples(2000, 301)) == [False]


@pytest.mark.parametrize(
    ("before", "second", "holds"), [(140, 301, False), (200, 390, True), (200, 401, False), (9000, 1001, False)]
)
def test_on_a_slow_machine_twice_the_usual_is_steady_but_never_what_a_stop_would_be(
    before: int, second: int, holds: bool
) -> None:
    assert judged([DOWN], samples(2000, second, before)) == [holds]


def test_an_outage_is_judged_for_either_shard() -> None:
    assert judged([injected("shard-2")], [Sample(s.at, s.lags[::-1], {}) for s in samples(2000, 301)]) == [False]


@pytest.mark.parametrize("group", ["aggregators", "zone-a", "aggregator-r1", "kafka-a"])
def test_what_touches_both_or_not_the_whole_shard_is_no_outage(group: str) -> None:
    assert outages([injected(group)], LAYOUT) == []


@pytest.mark.parametrize(
    ("faults", "seen"),
    [
        ([], samples(20, 20)),
        ([injected("shard-1", error="no")], samples(2000, 20)),
        ([injected("shard-1", kind=Kind.RESTART)], samples(2000, 20)),
        ([injected("shard-1", seconds=5)], samples(2000, 20)),
        ([DOWN, injected("kafka-a", 5, 6)], samples(2000, 2000)),
        ([DOWN, injected("aggregator-s2-r1", 29, 6)], samples(2000, 2000)),
        ([DOWN], [Sample(float(at), (2000, 1100), {}) for at in range(40)]),
        ([DOWN], samples(1000, 20)),
    ],
    ids=["nothing", "failed", "restart", "short", "kafka", "other shard", "unsteady before", "not down at all"],
)
def test_what_cannot_be_judged_is_not_claimed_and_fails_where_it_is_demanded(
    faults: list[Injected], seen: list[Sample]
) -> None:
    assert judged(faults, seen) == []
    assert judged(faults, seen, demanded=True) == [False]


def test_trouble_in_the_same_shard_does_not_matter() -> None:
    assert judged([DOWN, injected("clickhouse-r1", 12, 3)], samples(2000, 20)) == [True]


def test_one_shard_alone_is_never_judged() -> None:
    seen = [Sample(float(at), (20,), {}) for at in range(40)]
    assert isolated([injected("replica-r1")], seen, Layout(2), RATE) == []


def test_the_scenario_of_two_shards_has_an_outage_to_judge_and_harm_in_both() -> None:
    scenario = Scenario.model_validate(yaml.safe_load((SCENARIOS / "two-shards.yaml").read_text()))
    planned = [Injected(fault, fault.at, fault.end, fault.target) for fault in scenario.faults]
    assert [shard for _, shard in outages(planned, scenario.layout)] == [1]
    assert scenario.outages
    assert {"aggregator-s2-r1", "shard-1"} <= {fault.target for fault in scenario.faults}
