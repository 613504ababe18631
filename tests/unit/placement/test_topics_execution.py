"""Carrying a plan out, against a cluster in memory that copies a partition in two looks."""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest

from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.execution import Pace, cancel, execute, survey
from blockhouse.fleet.model import Move, PartitionState, Storage
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
        self.under_way: dict[TopicPartition, tuple[ReplicaSet, int]] = {}
        self.most_moving = 0
        self.started: list[TopicPartition] = []
        self.refuses: dict[TopicPartition, str] = {}
        self.silent_for = 0
        self.hides = False
        self.lost_during_look: TopicPartition | None = None

    def brokers(self) -> dict[int, Broker]:
        return {id: Broker(id) for id in self.alive}

    def partitions(self) -> dict[TopicPartition, PartitionState]:
        if self.silent_for:
            self.silent_for -= 1
            raise Retryable("no answer")
        for moving, (target, looks) in list(self.under_way.items()):
            self.under_way[moving] = (target, looks - 1)
            if looks == 1:
                self.sets[moving] = target
                del self.under_way[moving]
                if self.leaders[moving] not in target:
                    self.leaders[moving] = target[-1]
        found = {k: PartitionState(s, self.leaders[k], frozenset(s)) for k, s in self.sets.items()}
        if self.lost_during_look in self.under_way:
            self.delete(self.lost_during_look)
        return found

    def require_visible(self, topics: Collection[str]) -> None:
        if self.hides:
            raise Permanent(f"hidden: {', '.join(topics)}", reason="Hidden")

    def delete(self, key: TopicPartition) -> None:
        self.sets.pop(key)
        self.under_way.pop(key, None)

    def storage(self) -> Storage:
        return Storage({}, {})

    def moves(self) -> dict[TopicPartition, Move]:
        return {
            moving: Move(target, frozenset(target) - set(self.sets[moving]), frozenset())
            for moving, (target, _) in self.under_way.items()
        }

    def reassign(self, targets: Mapping[TopicPartition, ReplicaSet | None]) -> dict[TopicPartition, str]:
        if any(moving not in self.sets for moving in targets):
            raise Retryable("unknown topic or partition")  # as Kafka's clients do: it may be about to appear
        for moving, target in targets.items():
            if moving in self.refuses:
                continue
            self.under_way.pop(moving, None)
            if target is not None:
                self.under_way[moving] = (target, LOOKS_TO_COPY)
                self.started.append(moving)
        self.most_moving = max(self.most_moving, len(self.under_way))
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
    list(execute(fleet, PLAN, no_wait, Pace(in_flight=2)))

    assert fleet.most_moving == 2
    assert fleet.started == list(PLAN)


def test_an_execution_that_was_stopped_is_resumed_without_starting_anything_twice(fleet: FakeFleet) -> None:
    first = execute(fleet, PLAN, no_wait, Pace(in_flight=2))
    next(first)
    next(first)
    first.close()

    list(execute(fleet, PLAN, no_wait, Pace(in_flight=2)))

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
        "t partition 1 is being reassigned to [4, 2], the plan has [3, 1]",
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

    assert {moving: move.target for moving, move in fleet.moves().items()} == {key(1): (4, 2)}


def test_a_survey_shows_what_is_left_to_do_and_changes_nothing(fleet: FakeFleet) -> None:
    fleet.sets[key(0)] = fleet.sets[key(1)] = (3, 1)
    fleet.leaders[key(1)] = 3

    found = survey(fleet, PLAN)

    assert (found.electing, found.done) == ((key(0),), (key(1),))
    assert found.waiting == (key(2), key(3), key(4))
    assert fleet.started == []


class Watchful:
    """A guard that remembers what moved when it was asked."""

    def __init__(self, fleet: FakeFleet, *refusals: Exception) -> None:
        self.fleet = fleet
        self.refusals = list(refusals)
        self.asked: list[set[TopicPartition]] = []
        self.ended = self.left = 0

    def before_start(self, starting: Mapping[TopicPartition, ReplicaSet]) -> None:
        assert not set(starting) & set(self.fleet.under_way), "they move already"
        if self.refusals:
            raise self.refusals.pop(0)
        self.asked.append(set(starting))

    def after_look(self) -> None:
        pass

    def finished(self) -> None:
        assert not self.fleet.under_way
        self.ended += 1

    def abandoned(self) -> None:
        self.left += 1


def test_a_guard_is_asked_before_anything_starts_and_notified_of_the_end(fleet: FakeFleet) -> None:
    guard = Watchful(fleet)
    list(execute(fleet, PLAN, no_wait, Pace(in_flight=2), guard))
    assert set().union(*guard.asked) == set(fleet.started)
    assert guard.ended == 1


def test_what_its_guard_cannot_prepare_does_not_start(fleet: FakeFleet) -> None:
    waits: list[float] = []
    list(execute(fleet, PLAN, waits.append, Pace(), Watchful(fleet, Retryable("no answer", after=7.0))))
    assert waits[0] == 7.0
    other = FakeFleet({key(n): (1, 2) for n in range(5)})
    guard = Watchful(other, Permanent("no rights", reason="X"))
    with pytest.raises(Permanent, match="no rights"):
        list(execute(other, PLAN, no_wait, Pace(), guard))
    assert other.started == []
    assert (guard.left, guard.ended) == (1, 0), "what it has prepared is removed"


@pytest.mark.parametrize("moves", [True, False], ids=["while it moves", "before it moves"])
def test_a_partition_that_is_deleted_meanwhile_is_left_out(fleet: FakeFleet, moves: bool) -> None:
    guard = Watchful(fleet)
    steps = execute(fleet, PLAN, no_wait, Pace(in_flight=2), guard)
    next(steps)
    next(steps)
    deleted = key(0) if moves else key(4)
    assert (deleted in fleet.under_way) is moves
    fleet.delete(deleted)

    *_, last = steps

    assert last.finished
    assert last.gone == (deleted,)
    assert set(last.done) == set(PLAN) - {deleted}
    assert guard.ended == 1


def test_a_partition_that_is_deleted_between_two_answers_of_a_look_is_left_out(fleet: FakeFleet) -> None:
    """The first answer still has its old replicas, the second one no move: it seems to wait for its start."""
    fleet.lost_during_look = key(1)
    waits: list[float] = []

    def few_waits(seconds: float) -> None:
        waits.append(seconds)
        assert len(waits) < 100, "it does not end"

    *_, last = execute(fleet, PLAN, few_waits)

    assert last.finished
    assert last.gone == (key(1),)


def test_a_partition_that_is_only_hidden_is_not_taken_for_deleted(fleet: FakeFleet) -> None:
    steps = execute(fleet, PLAN, no_wait)
    next(steps)
    fleet.delete(key(0))
    fleet.hides = True
    with pytest.raises(Permanent, match="hidden: t"):
        list(steps)


def test_why_it_takes_longer_is_reported(fleet: FakeFleet) -> None:
    delays: list[Retryable] = []
    steps = execute(fleet, PLAN, no_wait, delayed=delays.append)
    next(steps)
    fleet.silent_for = 2
    list(steps)
    assert [str(error) for error in delays] == ["no answer"] * 2


def test_only_so_many_replicas_arrive_at_a_broker(fleet: FakeFleet) -> None:
    most = 0
    for _ in execute(fleet, PLAN, no_wait, Pace(per_broker=1)):
        arriving = [id for target, _ in fleet.under_way.values() for id in target if id > 2]
        most = max(most, *(arriving.count(id) for id in arriving), 0)
    assert most == 1
