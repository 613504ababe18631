"""Grants: one task writes a partition at any moment, and waiting is exactly as long as a grant and its last bytes."""

from __future__ import annotations

import pytest

from blockhouse.placement.model import TopicPartition
from blockhouse_mirror.protocol.ownership import GRANT_SECONDS, WIRE_SECONDS, Ownership

P, Q = TopicPartition("t", 0), TopicPartition("t", 1)
WAIT = GRANT_SECONDS + WIRE_SECONDS


def granted(ownership: Ownership, desired: dict[TopicPartition, str], running: set[str], now: float) -> set[object]:
    changes = ownership.changes(desired, running, now)
    for key, task in changes.grant:
        ownership.granted(key, task)
    return set(changes.grant)


def test_what_is_free_is_granted_at_once_to_tasks_that_run() -> None:
    ownership = Ownership()

    assert granted(ownership, {P: "a", Q: "b"}, {"a"}, 0.0) == {(P, "a")}
    assert granted(ownership, {P: "a", Q: "b"}, {"a"}, 0.0) == set(), "once is enough"
    assert ownership.held_by("a") == (P,)


def test_what_a_task_holds_is_asked_back_before_another_gets_it() -> None:
    ownership = Ownership()
    grant = ownership.granted(P, "a")

    changes = ownership.changes({P: "b"}, {"a", "b"}, 100.0)
    assert (changes.grant, changes.revoke) == ((), ((P, grant),))

    ownership.ending(P)
    changes = ownership.changes({P: "b"}, {"a", "b"}, 100.0)
    assert (changes.grant, changes.revoke) == ((), ()), "it was asked once, and is still held"

    assert ownership.confirmed(P, grant.generation)
    assert granted(ownership, {P: "b"}, {"a", "b"}, 100.0) == {(P, "b")}


def test_what_nothing_desires_any_more_is_asked_back() -> None:
    ownership = Ownership()
    grant = ownership.granted(P, "a")

    assert ownership.changes({}, {"a"}, 0.0).revoke == ((P, grant),)


def test_a_second_grant_of_what_is_held_is_refused() -> None:
    ownership = Ownership()
    ownership.granted(P, "a")

    with pytest.raises(ValueError, match="held by a"):
        ownership.granted(P, "b")


def test_an_answer_to_an_older_grant_frees_nothing() -> None:
    ownership = Ownership()
    first = ownership.granted(P, "a")
    ownership.confirmed(P, first.generation)
    second = ownership.granted(P, "b")

    assert not ownership.confirmed(P, first.generation)
    assert ownership.holder(P) == second
    assert not ownership.confirmed(Q, 1), "it was never granted"


def test_a_lost_tasks_partitions_wait_for_its_grant_and_its_wire_and_no_others_do() -> None:
    ownership = Ownership()
    ownership.granted(P, "a")
    ownership.granted(Q, "b")

    assert ownership.lost("a", 100.0) == (P,)
    assert ownership.holder(P) is None
    assert ownership.free_at(P) == 100.0 + WAIT

    desired = {P: "b", Q: "b"}
    assert granted(ownership, desired, {"b"}, 100.0 + WAIT - 0.01) == set()
    assert granted(ownership, desired, {"b"}, 100.0 + WAIT) == {(P, "b")}
    assert ownership.free_at(P) is None


def test_the_same_task_has_to_wait_too() -> None:
    """Its name is the same and its process another one: the former may still be writing."""
    ownership = Ownership()
    ownership.granted(P, "a")
    ownership.lost("a", 0.0)

    assert granted(ownership, {P: "a"}, {"a"}, 1.0) == set()


def test_an_end_that_was_asked_for_and_not_confirmed_is_a_loss_like_any_other() -> None:
    ownership = Ownership()
    grant = ownership.granted(P, "a")
    ownership.ending(P)
    ownership.lost("a", 0.0)

    assert not ownership.confirmed(P, grant.generation), "its late answer counts no more"
    assert granted(ownership, {P: "b"}, {"b"}, WAIT - 1) == set()
