"""The demonstration of a mirror: its load asks for what it shows, and it passes only if everything was seen."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from blockhouse.balance.count import TaskLimits, needed
from blockhouse.config.mirror import MirrorConfig
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.audit.compare import PartitionAudit
from e2e.demo.mirror.progress import bar
from e2e.demo.mirror.scenario import CAPACITY, HOT, TASKS, TOPIC, UTILIZATION, Rates, plan, settings
from e2e.demo.mirror.verdict import Killed, Observed, judge

SEEDS = range(50)
OVERHEAD = 1.1
"""What a log has beside the values."""
SEEN = Observed(1, 4, 5, 1, Killed("that of task1", 6, 15.2), Killed("the driver's tasks", 24, 27.0))
NONE = np.array([], dtype=np.int64)
EXACT = PartitionAudit("events", 0, 10, NONE, NONE, NONE, NONE, 0)
AUDITS = [replace(EXACT, partition=number) for number in range(3)]


def tasks_for(rates: Rates, factor: float) -> int:
    limits = TaskLimits(CAPACITY, UTILIZATION, fewest=1, most=TASKS)
    return needed({Key(TOPIC, n): factor * rate for n, rate in enumerate(rates)}, limits).tasks


def test_the_seed_decides_everything() -> None:
    assert plan(7) == plan(7)
    assert len({plan(seed) for seed in SEEDS}) == len(SEEDS)


def test_every_seed_needs_one_task_when_calm_and_all_in_a_rush() -> None:
    for scenario in map(plan, SEEDS):
        for factor in (1.0, OVERHEAD):
            assert tasks_for(scenario.calm, factor) == 1
            assert [tasks_for(rates, factor) for rates in scenario.rushes] == [TASKS, TASKS]


def test_every_seed_makes_entirely_other_partitions_hot() -> None:
    for scenario in map(plan, SEEDS):
        first, second = (
            {n for n, rate in enumerate(rates) if rate > 2 * scenario.calm[n]} for rates in scenario.rushes
        )
        assert (len(first), len(second), first & second) == (HOT, HOT, set())
        assert sum(scenario.rushes[0]) == pytest.approx(sum(scenario.rushes[1]))


def test_only_a_task_that_holds_something_is_killed_and_each_may_be() -> None:
    held = {"task0": 5, "task1": 0, "task2": 7}
    assert {plan(seed).task_to_kill(held) for seed in SEEDS} == {"task0", "task2"}
    assert plan(1).task_to_kill({"task0": 0}) is None


def test_its_settings_are_those_of_a_mirror() -> None:
    clusters = {name: {"name": name, "bootstrapServers": f"{name}:9092"} for name in ("source", "target")}
    config = MirrorConfig.model_validate({"name": "demo", **clusters, **settings()})
    assert config.delivery == "EffectivelyOnce"
    assert (config.load.max_tasks, config.load.capacity) == (TASKS, CAPACITY)


def test_a_run_in_which_everything_was_seen_passes() -> None:
    assert [check.demand for check in judge(SEEN, AUDITS, 3, 30) if not check.holds] == []


@pytest.mark.parametrize(
    ("seen", "demand"),
    [
        (replace(SEEN, grown=1), "more tasks when load grew"),
        (replace(SEEN, calm=0), "more tasks when load grew"),
        (replace(SEEN, moved=0), "partitions moved when others became hot"),
        (replace(SEEN, shrunk=4), "fewer tasks when load fell"),
        (replace(SEEN, shrunk=0), "fewer tasks when load fell"),
        (replace(SEEN, worker=None), "a worker was killed"),
        (replace(SEEN, worker=Killed("it", 0, 1.0)), "a worker was killed"),
        (replace(SEEN, driver=Killed("it", 24, None)), "the driver was killed"),
    ],
)
def test_what_was_not_seen_fails(seen: Observed, demand: str) -> None:
    failed = [check.demand for check in judge(seen, AUDITS, 3, 30) if not check.holds]
    assert failed
    assert any(each.startswith(demand) for each in failed)


@pytest.mark.parametrize(
    "audits",
    [
        AUDITS[:2],
        [*AUDITS[:2], AUDITS[0]],
        [*AUDITS[:2], replace(AUDITS[2], compared=9)],
        [*AUDITS[:2], replace(AUDITS[2], doubled=np.array([3]))],
        [*AUDITS[:2], replace(AUDITS[2], missing=np.array([3]))],
        [*AUDITS[:2], replace(AUDITS[2], reordered=1)],
    ],
)
def test_an_audit_of_too_little_or_with_a_fault_fails(audits: list[PartitionAudit]) -> None:
    assert not judge(SEEN, audits, 3, 30)[0].holds


def test_a_bar_is_red_above_what_is_planned_and_never_too_long() -> None:
    assert bar(0.5).plain == "#" * 10 + " 50%"
    assert (bar(0.9).style, bar(1.1).style) == ("cyan", "red")
    assert bar(9.0).plain.count("#") == 40
