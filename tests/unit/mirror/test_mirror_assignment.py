"""From measured load to tasks: the mirror's settings reach the rules of `balance`, and its limits are named."""

from __future__ import annotations

import time

import pytest

from blockhouse.balance.triggers import Cause
from blockhouse.errors import Permanent
from blockhouse.load.model import PartitionLoad, RateSource, Sample
from blockhouse.placement.model import TopicPartition
from blockhouse_mirror.runtime.assignment import Assigner
from tests.unit.mirror.driving import config

KEYS = tuple(TopicPartition("t", number) for number in range(8))
MIB = 1 << 20


def sample(rates: dict[TopicPartition, float], cluster: str = "S", at: float | None = None) -> Sample:
    now = time.time() if at is None else at
    return Sample(cluster, "test", now, 30, {key: PartitionLoad(rate) for key, rate in rates.items()})


def assigner(more: str = "", slots: int = 4) -> Assigner:
    return Assigner(config(f"load: {{{more}}}\n"), slots)


def test_without_any_measurement_every_partition_has_a_task_and_weighs_the_default() -> None:
    found = assigner("default: 1Ki, minTasks: 2")

    decision = found.decide(frozenset(KEYS), {})

    assert decision.assignment.partitions() == set(KEYS)
    assert [len(keys) for keys in decision.assignment.values()] == [4, 4]
    assert set(found.weights.values()) == {1024.0}
    assert found.sampled_at is None


def test_measured_load_decides_how_many_tasks_and_who_has_what() -> None:
    found = assigner("capacity: 10Mi, utilization: 0.5")
    found.measured(sample({key: 4.0 * MIB if key in KEYS[:2] else 1.0 * MIB for key in KEYS}))

    found.decide(frozenset(KEYS), {})

    assert len(found.assignment) == 3, "14 MiB/s, 5 MiB/s a task"
    quality = found.quality()
    assert quality is not None
    assert quality.ratio < 1.2
    owners = found.assignment.owners()
    assert owners[KEYS[0]] != owners[KEYS[1]]


@pytest.mark.parametrize(
    ("more", "slots", "tasks", "capped_by"),
    [
        ("capacity: 1Mi, maxTasks: 32", 4, 4, "Slots"),
        ("capacity: 1Mi, maxTasks: 3", 4, 3, "Max"),
        ("capacity: 1Mi, maxTasks: 4", 4, 4, "Max"),
        ("capacity: 1Gi, minTasks: 2", 4, 2, "Min"),
        ("capacity: 1Gi", 4, 1, ""),
        ("capacity: 1Gi, minTasks: 8", 4, 4, "Min"),
    ],
)
def test_what_caps_the_number_of_tasks_is_named(more: str, slots: int, tasks: int, capped_by: str) -> None:
    found = assigner(more, slots)
    found.measured(sample(dict.fromkeys(KEYS, 4.0 * MIB)))

    found.decide(frozenset(KEYS), {})

    assert (len(found.assignment), found.capped_by) == (tasks, capped_by)


def test_new_and_gone_partitions_are_counted_and_move_nothing_else() -> None:
    found = assigner("minTasks: 2")
    found.decide(frozenset(KEYS[:4]), {})
    before = found.assignment.owners()

    decision = found.decide(frozenset(KEYS[1:]), {})

    after = found.assignment.owners()
    assert {key: after[key] for key in KEYS[1:4]} == {key: before[key] for key in KEYS[1:4]}
    assert set(after) == set(KEYS[1:])
    assert decision.moved == frozenset()
    assert found.rebalances.by_cause[Cause.PARTITIONS] >= 1
    assert found.rebalances.moved == 0


def test_a_request_moves_what_the_tolerance_needs_and_is_counted() -> None:
    found = assigner("minTasks: 2, maxTasks: 2, window: 10s")
    found.decide(frozenset(KEYS), {})
    heavy = found.assignment[next(iter(found.assignment))]
    found.measured(sample({key: 4.0 * MIB if key in heavy else 0.5 * MIB for key in KEYS}))
    assert not found.decide(frozenset(KEYS), {}).moved, "nothing is late and nothing was requested"

    decision = found.decide(frozenset(KEYS), {}, requested=True)

    assert decision.moved
    assert found.rebalances.by_cause[Cause.REQUEST] == 1
    assert found.rebalances.moved == len(decision.moved)


def test_a_partition_that_no_task_carries_is_named_with_advice() -> None:
    found = assigner("capacity: 1Mi")
    light = TopicPartition("light", 0)
    found.measured(sample({KEYS[0]: 4.0 * MIB, light: 1.0}))

    found.decide(frozenset({KEYS[0], light}), {})

    (heavy,) = found.offending
    assert heavy.partition == KEYS[0]
    assert heavy.share > 1
    assert heavy.advice


def test_load_of_another_cluster_is_refused() -> None:
    found = assigner()
    found.measured(sample({KEYS[0]: 1.0}))

    with pytest.raises(Permanent):
        found.measured(sample({KEYS[0]: 1.0}, cluster="other", at=time.time() + 60))


def test_a_partition_weighs_at_least_what_this_hour_was_on_other_days() -> None:
    found, now = assigner("window: 1h"), time.time()
    found.measured(sample({KEYS[0]: 4.0 * MIB, KEYS[1]: 1.0 * MIB}, at=now - 24 * 3600))
    found.measured(sample({KEYS[0]: 1.0 * MIB, KEYS[1]: 2.0 * MIB}, at=now))

    found.decide(frozenset(KEYS[:2]), {})

    assert found.weights == {KEYS[0]: pytest.approx(4 * MIB, rel=0.001), KEYS[1]: pytest.approx(2 * MIB, rel=0.001)}
    assert set(found.sources.values()) == {RateSource.PARTITION}
