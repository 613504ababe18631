"""A seed decides a chaos run, every fault names something real, and a file says the same as a plan."""

from __future__ import annotations

import random
from collections import Counter

import pytest
import yaml
from pydantic import ValidationError

from e2e.chaos.catalogue import CASES, not_permitted, plan, series
from e2e.chaos.scenario import NETWORK, Fault, Kind, Scenario, groups, names, processes


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize("replicas", [2, 3, 4])
def test_every_case_is_a_valid_scenario(case: str, replicas: int) -> None:
    for seed in range(20):
        scenario = series([case], 3, seed, replicas, rate=100)
        assert {fault.case for fault in scenario.faults} == {case}
        assert len(scenario.faults) in (3, 6)


def test_a_series_has_every_case_so_many_times_in_an_order_of_chance() -> None:
    first, second = (series([*CASES], 10, seed, 4, rate=60) for seed in (1, 2))
    assert first == series([*CASES], 10, 1, 4, rate=60)
    assert [fault.case for fault in first.faults] != [fault.case for fault in second.faults]
    counts = Counter(fault.case for fault in first.faults)
    assert counts == {case: 20 if case == "zones-in-turn" else 10 for case in CASES}
    assert first.in_turn
    assert first.messages > 0


def test_the_same_seed_gives_the_same_run_and_another_one_another() -> None:
    assert plan(7, 180, 4, 200) == plan(7, 180, 4, 200)
    assert len({str(plan(seed, 180, 4, 200)) for seed in range(50)}) == 50


def test_every_random_run_begins_with_a_kill_that_must_be_replayed() -> None:
    for seed in range(100):
        first = plan(seed, 60, 4, 200).faults[0]
        assert (first.kind, first.point) == (Kind.STRIKE, "after-insert")


def test_random_runs_reach_every_case_and_leave_out_what_the_machine_forbids() -> None:
    kinds = {fault.kind for seed in range(100) for fault in plan(seed, 180, 4, 200).faults}
    assert kinds == set(Kind)
    without = not_permitted(network=False, disk=False)
    left = {fault.kind for seed in range(100) for fault in plan(seed, 180, 4, 200, without=without).faults}
    assert left == set(Kind) - NETWORK - {Kind.DISK_FULL}


def test_a_plan_written_as_yaml_is_read_back_the_same() -> None:
    scenario = plan(3, 120, 3, 50)
    text = yaml.safe_dump(scenario.model_dump(mode="json", by_alias=True, exclude_defaults=True))
    assert Scenario.model_validate(yaml.safe_load(text)) == scenario


@pytest.mark.parametrize(
    ("fault", "complaint"),
    [
        ({"at": 1, "kind": "kill", "target": "clickhouse-r9"}, "nothing is called clickhouse-r9"),
        ({"at": 1, "kind": "partition", "target": "zone-a"}, "need it"),
        ({"at": 1, "kind": "kill", "target": "zone-a", "peer": "zone-b"}, "need it"),
        ({"at": 1, "kind": "strike", "target": "kafka-a"}, "only aggregators"),
        ({"at": 1, "kind": "disk-full", "target": "clickhouse-r1"}, "disk of its own"),
        ({"at": 1, "kind": "kil", "target": "zone-a"}, "kind"),
        ({"at": 1, "kind": "kill", "target": "zone-a", "secnods": 3}, "secnods"),
    ],
)
def test_a_wrong_fault_is_refused_by_name(fault: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Scenario.model_validate({"replicas": 4, "faults": [fault]})


def test_zones_share_everything_but_zookeeper_and_verifier() -> None:
    for replicas in (2, 3, 4, 5):
        found = groups(replicas)
        assert sorted(found["zone-a"] + found["zone-b"] + ["verifier", "zookeeper"]) == sorted(processes(replicas))
        assert len(set(names(replicas))) == len(list(names(replicas)))


def test_faults_say_what_they_are() -> None:
    fault = CASES["packet-loss"](random.Random(1), 4)[0]
    assert str(fault).startswith("loss of ")
    assert str(Fault(at=0, kind=Kind.STRIKE, target="aggregator-r1")) == "strike at after-insert aggregator-r1, 5.0 s"
