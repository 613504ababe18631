"""Carrying a plan out, against a cluster in memory that copies a partition in two looks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.execution import cancel, execute, survey
from blockhouse.fleet.model import PartitionState, Storage
from blockhouse.placement.model import Broker, InvalidInput, PartitionMap, ReplicaSet, TopicPartition

LOOKS_TO_COPY = 2


def key(partition: int) -> TopicPartition:
    return TopicPartition("t", partition)


class FakeFleet:
    """Moves on whenever its partitions are asked for; leaders change only by election."""

    def __init__(self, sets: Mapping[TopicPartition, ReplicaSet], alive: Collection[int] = (1, 2, 3, 4)) -> None:
        self.sets = dict(sets)
        self.leaders = {key: replicas[0] for key, replicas in sets.items()}
        self.alive = set(alive)
        self.moves: dict[TopicPartition, tuple[ReplicaSet, int]] = {}
        self.most_moving = 0
        self.started: list[TopicPartition] = []
        self.refuses: dict[TopicPartition, str] = {}
        self.silent_for = 0

    def brokers(self) -> dict[int, Broker]:
        return {id: Broker(id) for id in self.alive}

    def partitions(self) -> dict[TopicPartition, PartitionState]:
        if self.silent_for:
            self.silent_for -= 1
            raise Retryable("no answer")
        for moving, (target, looks) in list(self.moves.items()):
            self.moves[moving] = (target, looks - 1)
            if looks == 1:
                self.sets[moving] = target
                del self.moves[moving]
                if self.leaders[moving] not in target:
                    self.leaders[moving] = target[-1]
        return {k: PartitionState(s, self.leaders[k], frozenset(s)) for k, s in self.sets.items()}

    def storage(self) -> Storage:
        return Storage({}, {})

    def reassigning(self) -> dict[TopicPartition, ReplicaSet]:
        return {moving: target for moving, (target, _) in self.moves.items()}

    def reassign(self, targets: Mapping[TopicPartition, ReplicaSet | None]) -> dict[TopicPartition, str]:
        for moving, target in targets.items():
            if moving in self.refuses:
                continue
            self.moves.pop(moving, None)
            if target is not None:
                self.moves[moving] = (target, LOOKS_TO_COPY)
                self.started.append(moving)
        self.most_moving = max(self.most_moving, len(self.moves))
        return {moving: reason for moving, reason in self.refuses.items() if moving in targets}

    def elect_preferred_leaders(self, partitions: Collection[TopicPartition]) -> None:
        for elected in partitions:
            self.leaders[elected] = self.sets[elected][0]


def no_wait(_seconds: float) -> None:
    pass


@pytest.fixture
def fleet() -> FakeFleet:
    return FakeFleet({key(n): (1, 2) for n in range(5)})


PLAN = PartitionMap({key(n): (3, 1) for n in range(5)})


def test_the_cluster_ends_as_planned_with_the_preferred_leaders(fleet: FakeFleet) -> None:
    *_, last = execute(fleet, PLAN, no_wait)

    assert last.finished
    assert fleet.sets == dict(PLAN)
    assert set(fleet.leaders.values()) == {3}


def test_only_so_many_partitions_move_at_a_time(fleet: FakeFleet) -> None:
    list(execute(fleet, PLAN, no_wait, in_flight=2))

    assert fleet.most_moving == 2
    assert fleet.started == list(PLAN)


def test_an_execution_that_was_stopped_is_resumed_without_starting_anything_twice(fleet: FakeFleet) -> None:
    first = execute(fleet, PLAN, no_wait, in_flight=2)
    next(first)
    next(first)
    first.close()

    list(execute(fleet, PLAN, no_wait, in_flight=2))

    assert sorted(fleet.started) == list(PLAN)
    assert fleet.sets == dict(PLAN)


def test_a_plan_that_is_carried_out_already_starts_nothing(fleet: FakeFleet) -> None:
    list(execute(fleet, PLAN, no_wait))
    fleet.started.clear()

    assert [progress.finished for progress in execute(fleet, PLAN, no_wait)] == [True]
    assert fleet.started == []


def test_a_cluster_that_does_not_answer_is_asked_again(fleet: FakeFleet) -> None:
    waits: list[float] = []
    steps = execute(fleet, PLAN, waits.append)
    next(steps)
    fleet.silent_for = 2

    assert list(steps)[-1].finished
    assert waits.count(0.2) == 2


def test_what_can_never_be_executed_is_listed_before_anything_starts(fleet: FakeFleet) -> None:
    fleet.reassign({key(1): (4, 2)})
    fleet.started.clear()
    plan = PartitionMap({key(0): (9, 1), key(1): (3, 1), key(7): (1, 2)})

    with pytest.raises(InvalidInput) as refused:
        next(execute(fleet, plan, no_wait))

    assert [problem.split(";")[0] for problem in refused.value.problems] == [
        "t partition 0: broker 9 of the plan is not alive",
        "t partition 1 is being reassigned to [4, 2], the plan says [3, 1]",
        "t partition 7 does not exist in the cluster",
    ]
    assert fleet.started == []


def test_partitions_the_cluster_refuses_are_named(fleet: FakeFleet) -> None:
    fleet.refuses = {key(2): "not authorized"}

    with pytest.raises(Permanent, match="t partition 2: not authorized"):
        list(execute(fleet, PLAN, no_wait))


def test_cancel_takes_back_only_what_moves_to_the_planned_set(fleet: FakeFleet) -> None:
    fleet.reassign({key(0): PLAN[key(0)], key(1): (4, 2)})

    assert cancel(fleet, PLAN, no_wait) == (key(0),)

    assert fleet.reassigning() == {key(1): (4, 2)}


def test_a_survey_tells_what_is_left_to_do_and_changes_nothing(fleet: FakeFleet) -> None:
    fleet.sets[key(0)] = fleet.sets[key(1)] = (3, 1)
    fleet.leaders[key(1)] = 3

    found = survey(fleet, PLAN)

    assert (found.electing, found.done) == ((key(0),), (key(1),))
    assert found.waiting == (key(2), key(3), key(4))
    assert fleet.started == []
