"""Who begins a round for a stream without an owner, and when; a coordinator's answers are the integration test's."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from itertools import pairwise

import pytest

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.pipeline import Kafka
from blockhouse_aggregator.kafka import coverage
from blockhouse_aggregator.kafka.coverage import Coverage, Standing

CLUSTER = KafkaCluster(name="a", bootstrap_servers="nowhere.invalid:9092")
KAFKA = Kafka(topic="t", group="g", clusters=(CLUSTER,), session_timeout=10, commit_timeout=3)
PATIENCE = 16.0

COVERED = Standing(stable=True, partitions=4, unowned=(), owned=Counter(r1=2, r2=2))
GAP = Standing(stable=True, partitions=4, unowned={3}, owned=Counter(r1=1, r2=2))
MOVING = Standing(stable=False, partitions=4, unowned={3}, owned=Counter(r1=1, r2=2))
UNSETTLED = Standing(stable=False, partitions=4, unowned=(), owned=Counter(r1=2, r2=2))


class Group:
    """What a coordinator answers at which time, and whether it was asked."""

    def __init__(self) -> None:
        self.now = 1000.0
        self.outcome: Standing | Exception = COVERED
        self.asked = 0

    def answer(self) -> Standing:
        self.asked += 1
        if isinstance(self.outcome, Exception):
            raise self.outcome
        return self.outcome

    def overdue_after(self, subject: Coverage, seconds: float) -> float | None:
        """After how many seconds it is overdue, None when it is not within as many."""
        began = self.now
        while self.now - began <= seconds:
            if subject.overdue():
                return self.now - began
            self.now += 0.1
        return None


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Group:
    found = Group()

    class Inline:
        """A thread that has run when it was started."""

        def __init__(self, target: Callable[[], None], **_: object) -> None:
            self.start = target

    monkeypatch.setattr(coverage.threading, "Thread", Inline)
    monkeypatch.setattr(coverage, "ask", lambda *_: found.answer())
    monkeypatch.setattr(coverage.time, "monotonic", lambda: found.now)
    return found


def test_no_coordinator_is_asked_outside_a_group_and_once_all_is_owned_no_more(group: Group) -> None:
    subject = Coverage(CLUSTER, KAFKA, "r1")
    assert group.overdue_after(subject, 60) is None
    assert group.asked == 0
    subject.assigned()
    assert group.overdue_after(subject, 60) is None
    assert group.asked == 1


def test_the_member_that_owns_least_acts_first_and_the_next_if_it_does_not(group: Group) -> None:
    group.outcome = GAP
    first, second = Coverage(CLUSTER, KAFKA, "r1"), Coverage(CLUSTER, KAFKA, "r2")
    first.assigned(), second.assigned()
    began = group.now
    after = group.overdue_after(first, 60)
    assert after is not None
    assert PATIENCE < after < PATIENCE + 15
    group.now = began
    after = group.overdue_after(second, 60)
    assert after is not None
    assert 2 * PATIENCE < after < 2 * PATIENCE + 15


@pytest.mark.parametrize("interruption", [MOVING, RuntimeError("no broker"), "round"])
def test_only_what_is_seen_without_interruption_counts(group: Group, interruption: Standing | Exception | str) -> None:
    subject = Coverage(CLUSTER, KAFKA, "r1")
    subject.assigned()
    group.outcome = GAP
    assert group.overdue_after(subject, PATIENCE) is None
    if isinstance(interruption, str):
        subject.assigned()
    else:
        group.outcome = interruption
        assert group.overdue_after(subject, 6) is None
    group.outcome = GAP
    after = group.overdue_after(subject, 60)
    assert after is not None
    assert after > PATIENCE


@pytest.mark.parametrize("again", [Coverage.forget, Coverage.assigned])
def test_an_answer_that_was_asked_for_before_an_assignment_is_not_about_it(
    group: Group, monkeypatch: pytest.MonkeyPatch, again: Callable[[Coverage], None]
) -> None:
    """That all was owned in the round before must not end the observation of this one."""
    late: Future[Standing | None] = Future()
    subject = Coverage(CLUSTER, KAFKA, "r1")
    subject.assigned()
    with monkeypatch.context() as patched:
        patched.setattr(coverage, "_in_background", lambda _: late)
        assert group.overdue_after(subject, 6) is None
    again(subject)
    subject.assigned()
    late.set_result(COVERED)
    group.outcome = GAP
    assert group.overdue_after(subject, 60) is not None


def test_a_group_that_has_not_come_to_rest_is_asked_again(group: Group) -> None:
    group.outcome = UNSETTLED
    subject = Coverage(CLUSTER, KAFKA, "r1")
    subject.assigned()
    assert group.overdue_after(subject, 60) is None
    assert group.asked > 5


def test_a_round_that_fixes_nothing_is_repeated_less_and_less_often(group: Group) -> None:
    group.outcome = GAP
    subject = Coverage(CLUSTER, KAFKA, "r1")
    waits = []
    for _ in range(4):
        subject.forget()
        subject.assigned()
        waits.append(group.overdue_after(subject, 1000) or 0)
    assert all(later > 1.5 * sooner for sooner, later in pairwise(waits))
    subject.forget()
    subject.assigned()
    group.outcome = COVERED
    assert group.overdue_after(subject, 6) is None
    subject.assigned()
    group.outcome = GAP
    assert (group.overdue_after(subject, 1000) or 0) < PATIENCE + 15


def test_without_a_thread_to_ask_nothing_ends(group: Group, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(**_: object) -> None:
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(coverage.threading, "Thread", refuse)
    subject = Coverage(CLUSTER, KAFKA, "r1")
    subject.assigned()
    assert group.overdue_after(subject, 60) is None


def test_a_member_that_is_not_in_the_description_has_its_place_all_the_same() -> None:
    assert GAP.rank("r0") == 0
    assert GAP.rank("r1") == 0
    assert GAP.rank("r2") == 1
