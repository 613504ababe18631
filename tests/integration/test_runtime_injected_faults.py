"""Faults at exactly the moments that matter, set in real aggregators over their admin API: every row once, whatever
happens between commit, insert and acknowledgement."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from e2e.pipeline import AggregatorProcess
from e2e.stack import Stack
from tests.integration.runtime_pipeline import Loading, healed, loading

pytestmark = pytest.mark.integration

STREAM = ("a", 0)
SETTINGS = {"faults": {"enabled": True}}


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    with loading(running_stack, tmp_path_factory.mktemp("injected"), "injected", settings=SETTINGS) as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed(running) as found:
        yield found


def injected(aggregator: AggregatorProcess, point: str) -> int:
    return len(aggregator.logged("fault.injected", point=point))


@contextmanager
def struck(pipeline: Loading, loaded: str, point: str, **fault: Any) -> Iterator[AggregatorProcess]:
    """The owner of STREAM meets the fault with its next message, which is sent inside; afterwards all must be exact."""
    pipeline.feed.send(loaded, 5)
    pipeline.settle(loaded)
    owner = pipeline.owner(*STREAM)
    before = injected(owner, point)
    owner.arm_fault(point, stream=pipeline.stream(*STREAM), **fault)
    pipeline.feed.send(loaded, 10)
    pipeline.wait(f"the fault at {point}", lambda: injected(owner, point) > before)
    yield owner
    pipeline.settle(loaded)


def test_an_owner_killed_between_commit_and_insert_leaves_a_block_that_its_successor_inserts(pipeline: Loading) -> None:
    table = pipeline.feed.table("between")
    with struck(pipeline, table, "after-commit", action="kill-aggregator") as victim:
        pipeline.wait("its death", lambda: not victim.alive)
        survivor = pipeline.owner(*STREAM, other_than=victim)
        pipeline.wait(
            "the takeover", lambda: bool(survivor.logged("stream.taken_over", stream=pipeline.stream(*STREAM)))
        )
        inherited = survivor.logged("stream.taken_over", stream=pipeline.stream(*STREAM))[-1]["replays"]
        assert inherited == 1, "the intent was committed, and no owner knew that it was not inserted"


def test_an_owner_killed_between_insert_and_acknowledgement_leaves_a_block_that_is_recognised(
    pipeline: Loading,
) -> None:
    table = pipeline.feed.table("unheard")
    with struck(pipeline, table, "after-insert", action="kill-aggregator", table=table) as victim:
        pipeline.wait("its death", lambda: not victim.alive)
        survivor = pipeline.owner(*STREAM, other_than=victim)
    assert survivor.counter("by_provenance") >= 1, "its rows are asked before the server's memory"


def test_a_worker_killed_after_its_insert_is_replaced_and_its_block_recognised(pipeline: Loading) -> None:
    table = pipeline.feed.table("worker")
    with struck(pipeline, table, "after-insert", action="kill-worker", table=table) as owner:
        replays = owner.counter("replays")
        pipeline.wait("the lease to fail", lambda: bool(owner.logged("lease.failed", stream=pipeline.stream(*STREAM))))
        pipeline.wait("the replay", lambda: owner.counter("replays") > replays)


def test_a_commit_whose_answer_is_lost_makes_the_member_rejoin(pipeline: Loading) -> None:
    table = pipeline.feed.table("answer")
    owner = pipeline.owner(*STREAM)
    before = owner.metric("blockhouse_rejoins_total")
    with struck(pipeline, table, "after-commit", action="fail") as owner:
        pipeline.wait("the rejoin", lambda: owner.metric("blockhouse_rejoins_total") > before)


def test_a_refused_commit_inserts_nothing_and_the_round_is_read_again(pipeline: Loading) -> None:
    table = pipeline.feed.table("refused")
    with struck(pipeline, table, "before-commit", action="fail") as owner:
        lines = owner.logged("stream.commit", outcome="refused", reason="InjectedFault")
        assert lines, "the commit was not refused"


def test_messages_that_are_refused_for_a_while_arrive_later(pipeline: Loading) -> None:
    table = pipeline.feed.table("refusal")
    with struck(pipeline, table, "during-fetch", action="fail", count=None, lasts=20) as owner:
        pipeline.wait("several refusals", lambda: injected(owner, "during-fetch") >= 3)
    assert owner.logged("task.trouble", stream=pipeline.stream(*STREAM))


def test_a_slow_revocation_lets_no_owner_insert_twice(pipeline: Loading) -> None:
    """The member hangs in the group's callback while the stream still has blocks under way."""
    table = pipeline.feed.table("revoke")
    owner = pipeline.owner(*STREAM)
    stayer = pipeline.peer(owner)
    with pipeline.feed.flowing(table):
        stayer.kill()
        pipeline.wait("all streams with one", lambda: len(owner.streams()) == len(pipeline.feed.streams), 90)
        before = injected(owner, "on-revoke")
        owner.arm_fault("on-revoke", action="delay", seconds=3, count=2)
        stayer.start()
        pipeline.wait("the slow revocation", lambda: injected(owner, "on-revoke") > before, 90)
    pipeline.settle(table)
