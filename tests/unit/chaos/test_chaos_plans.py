"""A seed decides a chaos run, every fault names something real, and a file holds the same as a plan."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest
import yaml
from pydantic import ValidationError

from e2e.chaos.catalogue import CASES, not_permitted, permitted_cases, plan, series
from e2e.chaos.layout import EVERYTHING, Layout, pod_of
from e2e.chaos.scenario import NETWORK, Fault, Kind, Scenario

FILES = sorted((Path(__file__).parents[3] / "e2e/chaos/scenarios").glob("*.yaml"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_every_file_is_a_valid_scenario_whose_faults_are_over_in_time(path: Path) -> None:
    scenario = Scenario.model_validate(yaml.safe_load(path.read_text()))
    assert scenario.name == path.stem
    assert scenario.faults
    assert all(fault.end <= scenario.seconds for fault in scenario.faults)


@pytest.mark.parametrize("case", CASES)
@pytest.mark.parametrize(("replicas", "shards"), [(2, 1), (3, 1), (4, 1), (2, 2), (4, 2)])
def test_every_case_is_a_valid_scenario(case: str, replicas: int, shards: int) -> None:
    if case not in permitted_cases((), shards):
        return  # there is no other shard
    for seed in range(20):
        scenario = series([case], 3, seed, replicas, rate=100, shards=shards)
        assert {fault.case for fault in scenario.faults} == {case}
        assert len(scenario.faults) in (3, 6)


def test_a_series_has_every_case_so_many_times_in_an_order_of_chance() -> None:
    first, second = (series([*CASES], 10, seed, 4, rate=60, shards=2) for seed in (1, 2))
    assert first == series([*CASES], 10, 1, 4, rate=60, shards=2)
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


def test_most_faults_of_random_runs_meet_another_one() -> None:
    runs = [plan(seed, 180, 4, 200).faults for seed in range(100)]
    met = [
        any(one is not other and one.at < other.end and other.at < one.end for other in run)
        for run in runs
        for one in run
    ]
    assert sum(met) > 0.75 * len(met)


def test_a_power_loss_takes_everything_and_is_part_of_most_random_runs() -> None:
    (fault,) = CASES["power-loss"](random.Random(1), Layout(4, 2))
    assert fault.kind is Kind.KILL
    assert sorted(Layout(4, 2).members(fault.target)) == sorted(Layout(4, 2).processes)
    struck = [any(each.target == EVERYTHING for each in plan(seed, 180, 4, 200).faults) for seed in range(100)]
    assert sum(struck) > 50


def test_random_runs_reach_every_case_and_leave_out_what_the_machine_forbids() -> None:
    kinds = {fault.kind for seed in range(100) for fault in plan(seed, 180, 4, 200).faults}
    assert kinds == set(Kind)
    (no_root,) = not_permitted(isolated=False, clocks=True).values()
    left = {fault.kind for seed in range(100) for fault in plan(seed, 180, 4, 200, without=no_root).faults}
    assert left == set(Kind) - NETWORK - {Kind.DISK_FULL}
    (no_library,) = not_permitted(isolated=True, clocks=False).values()
    left = {fault.kind for seed in range(100) for fault in plan(seed, 180, 4, 200, without=no_library).faults}
    assert left == set(Kind) - {Kind.SKEW}
    assert not_permitted(isolated=True, clocks=True) == {}


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
        ({"at": 1, "kind": "skew", "target": "zookeeper"}, "only the clocks of kafka-a, kafka-b, verifier"),
        ({"at": 1, "kind": "skew", "target": "zone-a"}, "only the clocks of"),
        ({"at": 1, "kind": "skew", "target": "kafka-a", "offset": 5}, "too little to be noticed"),
        ({"at": 1, "kind": "skew", "target": "kafka-a", "offset": 3601}, "offset"),
        ({"at": 1, "kind": "kil", "target": "zone-a"}, "kind"),
        ({"at": 1, "kind": "kill", "target": "zone-a", "secnods": 3}, "secnods"),
    ],
)
def test_a_wrong_fault_is_refused_by_name(fault: dict[str, object], complaint: str) -> None:
    with pytest.raises(ValidationError, match=complaint):
        Scenario.model_validate({"replicas": 4, "faults": [fault]})


@pytest.mark.parametrize("shards", [1, 2])
def test_zones_share_everything_but_zookeeper_and_verifier(shards: int) -> None:
    for replicas in (2, 3, 4, 5):
        layout = Layout(replicas, shards)
        found = layout.zones["zone-a"] + layout.zones["zone-b"]
        assert sorted([*found, "verifier", "zookeeper"]) == sorted(layout.processes)
        assert not {*layout.processes} & {*layout.groups}


def test_names_of_the_first_shard_are_those_of_a_run_without_a_second() -> None:
    one, two = Layout(4), Layout(4, 2)
    assert {*one.names} < {*two.names}
    assert sorted(two.members("shard-1")) == sorted({*one.processes} - {"zookeeper", "kafka-a", "kafka-b", "verifier"})
    assert two.members("shard-2")[:2] == ["clickhouse-s2-r1", "aggregator-s2-r1"]
    assert [two.shard_of(pod_of(f"aggregator-{pod}")) for pod in ("r3", "s2-r3")] == [1, 2]
    assert "aggregator-s2-r1" in two.members("zone-a")
    assert "aggregator-s2-r3" in two.members("zone-b")


def test_a_second_shard_is_hit_as_well_and_the_first_alone_by_nothing_of_two() -> None:
    targets = {fault.target for seed in range(100) for fault in plan(seed, 180, 4, 200, shards=2).faults}
    assert {"aggregator-r1", "aggregator-s2-r1", "clickhouse-s2-r4", "shard-1", "shard-2"} <= targets
    alone = {fault.target for seed in range(100) for fault in plan(seed, 180, 4, 200).faults}
    assert not [name for name in alone if "s2" in name or "shard" in name]


def test_more_pods_than_a_machine_can_start_are_refused() -> None:
    with pytest.raises(ValidationError, match="at most 8 in all"):
        Scenario(shards=2, replicas=5)


def test_faults_describe_what_they_are() -> None:
    fault = CASES["packet-loss"](random.Random(1), Layout(4))[0]
    assert str(fault).startswith("loss of ")
    assert str(Fault(at=0, kind=Kind.SKEW, target="kafka-a")) == "skew by -300 s of kafka-a, 5.0 s"
    assert str(Fault(at=0, kind=Kind.STRIKE, target="aggregator-r1")) == "strike at after-insert aggregator-r1, 5.0 s"
