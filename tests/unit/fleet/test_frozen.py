"""Frozen plans: what their hash covers, and how each partition is judged by itself."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse.errors import Permanent
from blockhouse.fleet.frozen import FrozenPlan, Seen, Verdict, freeze, judge, next_target, parse, render
from blockhouse.fleet.model import Move, PartitionState
from blockhouse.placement.model import PartitionMap, ReplicaSet, TopicPartition

KEYS = [TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)]
IDS = {"t": "id-t", "u": "id-u", "v": "id-v"}
BEFORE = PartitionMap(dict.fromkeys(KEYS, (1, 2)))
AFTER = PartitionMap({KEYS[0]: (3, 2), KEYS[1]: (1, 2), KEYS[2]: (2, 1)})


def plan(**more: bool) -> FrozenPlan:
    return freeze("cluster", IDS, BEFORE, AFTER, {KEYS[0]: 100.0}, "question", **more)


def state(replicas: ReplicaSet, in_sync: ReplicaSet | None = None, leader: int | None = None) -> PartitionState:
    return PartitionState(replicas, replicas[0] if leader is None else leader, frozenset(in_sync or replicas))


def seen(**changes: object) -> Seen:
    found = Seen({key: state((1, 2)) for key in KEYS}, {}, frozenset({1, 2, 3}), IDS)
    return replace(found, **changes)  # type: ignore[arg-type]


def verdict(first: PartitionState | None, move: Move | None = None, **changes: object) -> Verdict:
    """Of t partition 0, which goes from 1, 2 to 3, 2; the other partition must not be touched by it."""
    partitions = {KEYS[2]: state((1, 2))} | ({KEYS[0]: first} if first else {})
    found = judge(plan(), seen(partitions=partitions, moves={KEYS[0]: move} if move else {}, **changes))
    assert found[KEYS[2]] is Verdict.WAITING or "topic_ids" in changes, "one partition stops no other"
    return found[KEYS[0]]


def test_a_plan_has_only_what_changes_and_what_is_copied() -> None:
    made = plan()
    assert [move.key for move in made.moves] == [KEYS[0], KEYS[2]]
    assert made.bytes == 100.0, "a new leader copies nothing"
    assert set(made.topic_ids) == {"t", "u"}


def test_the_hash_changes_with_everything_that_an_approval_is_about() -> None:
    made = plan()
    others = [
        replace(made, cluster_id="other"),
        replace(made, topic_ids={**made.topic_ids, "t": "made again"}),
        replace(made, moves=made.moves[:1]),
        replace(made, moves=(replace(made.moves[0], after=(3, 1)), made.moves[1])),
        replace(made, moves=(replace(made.moves[0], before=(2, 1)), made.moves[1])),
        replace(made, phased=True),
    ]
    assert len({made.hash, *(other.hash for other in others)}) == 7
    assert replace(made, inputs="x").hash == made.hash


def test_a_plan_survives_its_document_and_a_changed_one_is_refused() -> None:
    made = plan(phased=True)
    assert parse(render(made), "x") == made
    with pytest.raises(Permanent, match="x is not a frozen plan: its content does not have its hash"):
        parse(render(made).replace("[3, 2]", "[3, 1]"), "x")
    with pytest.raises(Permanent, match="version 2 is not known"):
        parse(render(made).replace('"version": 1', '"version": 2'), "x")


def test_each_partition_has_a_verdict_of_its_own() -> None:
    under_way = Move((3, 2, 1), frozenset({3}), frozenset({1}))
    assert verdict(state((1, 2))) is Verdict.WAITING
    assert verdict(state((2, 1))) is Verdict.WAITING, "a cancelled move gives brokers back, not their order"
    assert verdict(state((3, 2, 1), (1, 2)), under_way) is Verdict.MOVING
    assert verdict(state((4, 2, 1), (1, 2)), Move((4, 2, 1), frozenset({4}), frozenset({1}))) is Verdict.FOREIGN
    assert verdict(state((3, 2))) is Verdict.DONE
    assert verdict(state((3, 2), leader=2)) is Verdict.ELECTING
    assert verdict(state((3, 2), (2,), leader=2)) is Verdict.ELECTING
    assert verdict(state((3, 2), (2,), leader=2), live=frozenset({1, 2})) is Verdict.DEAD
    assert verdict(state((1, 2)), live=frozenset({1, 2})) is Verdict.DEAD
    assert verdict(state((1, 4))) is Verdict.NEITHER
    assert verdict(None) is Verdict.GONE
    assert verdict(state((1, 2)), topic_ids={"t": "made again", "u": "id-u"}) is Verdict.GONE


def test_a_phased_plan_copies_under_the_old_leader_first() -> None:
    phased = plan(phased=True)
    first, leader_only = phased.moves
    assert next_target(phased, first, seen()) == (1, 3, 2)
    copied = seen(partitions={KEYS[0]: state((1, 3, 2)), KEYS[2]: state((1, 2))})
    assert judge(phased, copied)[KEYS[0]] is Verdict.WAITING
    assert next_target(phased, first, copied) == (3, 2)
    assert next_target(phased, first, seen(live=frozenset({2, 3}))) == (3, 2), "a dead leader leads nothing"
    assert next_target(phased, leader_only, seen()) == (2, 1), "no phase that changes nothing"
    assert phased.concerns(KEYS[0], (1, 3, 2))
    assert phased.concerns(KEYS[0], (3, 2))
    assert not phased.concerns(KEYS[0], (4, 2))
    assert not plan().concerns(KEYS[0], (1, 3, 2))
