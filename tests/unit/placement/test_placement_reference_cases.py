"""Plans against the recorded plans of another planner: valid, and never worse in moves, evenness or constraints.

Run with `pytest -s` to see the table. Skipped where the recorded cases are not at hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from statistics import pstdev
from typing import Any

import pytest

from blockhouse.placement.model import Broker, InvalidInput, PartitionMap, Sizes, TopicPartition, brokers_by_id
from blockhouse.placement.plan import Plan
from blockhouse.placement.rebalance import RebalanceOptions, plan_rebalance
from blockhouse.placement.rebuild import RebuildOptions, plan_rebuild

CASES = Path(__file__).parents[4] / "shared/cases/topicmappr_cases.jsonl"
pytestmark = pytest.mark.skipif(not CASES.exists(), reason="the recorded cases are not at hand")

Case = dict[str, Any]
ALL: list[Case] = [json.loads(line) for line in CASES.read_text().splitlines()] if CASES.exists() else []
ROUNDING = 1 + 1e-12


def partition_map(document: Any) -> PartitionMap:
    return PartitionMap({TopicPartition(p["topic"], p["partition"]): p["replicas"] for p in document["partitions"]})


def plan_of(case: Case) -> Plan:
    current = partition_map(case["map_in"])
    cluster = brokers_by_id(Broker(b["id"], b["rack"], float(b["storage_free"])) for b in case["cluster"])
    sizes: Sizes = {
        TopicPartition(topic, int(number)): float(size)
        for topic, partitions in case["partition_sizes"].items()
        for number, size in partitions.items()
    }
    if case["op"] == "rebuild":
        options = RebuildOptions(
            placement=case["placement"],
            optimize=case["optimize"],
            replication=case["replication"],
            force=case["force_rebuild"],
            sub_affinity=case["sub_affinity"],
            optimize_leadership=case["optimize_leadership"],
            min_rack_ids=case["min_rack_ids"],
            size_factor=case["partition_size_factor"],
        )
        return plan_rebuild(current, cluster, case["brokers"], options, sizes)
    return plan_rebalance(
        current,
        cluster,
        case["brokers"],
        sizes,
        RebalanceOptions(
            operation=case["op"],
            threshold=case["storage_threshold"] or 0.20,
            tolerance=case["tolerance"] or None,
            partition_limit=case["partition_limit"],
            min_partition_mib=case["partition_size_threshold_mb"],
            rack_local=case["locality_scoped"],
            optimize_leadership=case["optimize_leadership"],
        ),
    )


def problems_of(case: Case) -> tuple[str, ...]:
    try:
        return plan_of(case).errors
    except InvalidInput as refused:
        return refused.problems


def moves(before: PartitionMap, after: PartitionMap) -> int:
    return sum(len(set(after[key]) - set(before[key])) for key in before)


def evenness(free: Mapping[int, float]) -> tuple[float, float]:
    return max(free.values()) - min(free.values()), pstdev(free.values())


def count_spread(counts: Mapping[int, int], brokers: list[int]) -> int:
    held = [counts.get(id, 0) for id in brokers]
    return max(held) - min(held)


def sum_of_squares(counts: Mapping[int, int]) -> int:
    return sum(count * count for count in counts.values())


def broken_constraints(case: Case, before: PartitionMap, after: PartitionMap) -> list[str]:
    racks = {b["id"]: b["rack"] for b in case["cluster"]}
    broken = []
    for key, replicas in after.items():
        if not set(replicas) <= set(case["brokers"]):
            broken.append(f"{key}: on a broker that is not in the list")
        if len(replicas) != (case["replication"] or len(before[key])):
            broken.append(f"{key}: wrong replication")
        kept = [racks[id] for id in replicas if id in before[key] and not case["force_rebuild"]]
        arrived = [racks[id] for id in replicas if racks[id] not in kept]
        needed = case["min_rack_ids"] or len(replicas)
        collides = len({*kept, *arrived}) < min(needed, len(replicas)) and len(set(kept)) == len(kept)
        if collides:
            broken.append(f"{key}: {replicas} in racks {[racks[id] for id in replicas]}")
    return broken


@pytest.mark.parametrize("case", ALL, ids=lambda case: case["name"])
def test_a_plan_is_valid_and_no_worse_than_the_recorded_one(case: Case) -> None:
    if case["errors"]:
        assert problems_of(case)
        return
    before, recorded = partition_map(case["map_in"]), partition_map(case["map_out"])

    plan = plan_of(case)

    assert plan.errors == ()
    assert broken_constraints(case, before, plan.after) == []
    assert moves(before, plan.after) <= moves(before, recorded)
    if plan.free_after is not None:
        wide, deviation = evenness({int(id): free for id, free in case["storage_free_out"].items()})
        ours = evenness(plan.free_after)
        assert ours[0] <= wide * ROUNDING
        assert ours[1] <= deviation * ROUNDING
        has_no_shuffle = case["op"] != "rebuild" or case["optimize"] == "distribution"
        assert not has_no_shuffle or plan.after == recorded
    if case["force_rebuild"] and case["placement"] == "count":
        counts, theirs = plan.after.replica_counts(), recorded.replica_counts()
        assert count_spread(counts, case["brokers"]) <= max(1, count_spread(theirs, case["brokers"]))
    if case["optimize_leadership"]:
        assert sum_of_squares(plan.after.leader_counts()) <= sum_of_squares(recorded.leader_counts())


@pytest.mark.parametrize("case", [c for c in ALL if c["op"] != "rebuild"], ids=lambda case: case["name"])
def test_a_rebalance_finds_the_recorded_targets_with_the_lowest_tolerance(case: Case) -> None:
    plan = plan_of(case)

    assert list(plan.targets) == (case.get("offload_targets") or [])
    assert plan.tolerance is not None
    assert plan.tolerance <= case["chosen_tolerance"] + 1e-9


def test_the_table_of_all_cases() -> None:
    kinds: dict[str, list[int]] = {}
    for case in ALL:
        row = kinds.setdefault(case["name"].split("-", 1)[1], [0] * 5)
        row[0] += 1
        try:
            plan = plan_of(case)
        except InvalidInput:
            row[1] += 1
            continue
        row[1] += bool(plan.errors)
        if case["errors"]:
            continue
        before, recorded = partition_map(case["map_in"]), partition_map(case["map_out"])
        row[2] += plan.after == recorded
        row[3] += moves(before, plan.after)
        row[4] += moves(before, recorded)
    print(f"\n{'kind':28}{'cases':>6}{'errors':>7}{'same map':>9}{'moves':>6}{'recorded':>9}")
    for kind, row in sorted(kinds.items()):
        print(f"{kind:28}{row[0]:6}{row[1]:7}{row[2]:9}{row[3]:6}{row[4]:9}")
    assert sum(row[0] for row in kinds.values()) == len(ALL)
