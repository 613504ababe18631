"""Messages that end the Python worker that decodes them: set aside like every bad one, and nothing else with them."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.pipeline import AggregatorProcess
from e2e.stack import Stack
from tests.integration.runtime_pipeline import Loading, healed, loading
from tests.integration.test_runtime_messages import dead_letters

pytestmark = [pytest.mark.integration, pytest.mark.long]

STREAM = ("a", 0)
DEADLY = b"\x1b" * 400_000
"""Groups within groups, without end: ptars overflows its stack. (tests/unit/isolation shows that it does.)"""
SETTINGS = {"faults": {"enabled": True}, "blocks": {"maxAge": "2s"}}
"""Blocks that wait long enough for all that a test sends at once."""


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    with loading(running_stack, tmp_path_factory.mktemp("deadly"), "deadly", settings=SETTINGS) as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed(running) as found:
        yield found


def careful(owner: AggregatorProcess, stream: str, order: str) -> int:
    return len(owner.logged("order.careful", stream=stream, order=order))


def deadly_letters(pipeline: Loading) -> dict[str, bytes | None]:
    letters = dead_letters(pipeline, STREAM[0])
    return {key: letter["value"] for key, letter in letters.items() if letter["blockhouse.reason"] == b"KillsWorker"}


def test_the_message_alone_becomes_a_dead_letter_and_all_else_flows(pipeline: Loading) -> None:
    feed, name = pipeline.feed, pipeline.stream(*STREAM)
    table, beside = feed.table("deadly"), feed.table("deadly_beside")
    _, headers = feed.encode(table, [{"id": 1}])
    feed.send(table, 5)
    pipeline.settle(table)
    owner = pipeline.owner(*STREAM)
    failed = len(owner.logged("lease.failed", stream=name))
    feed.send_one_of_each([table, beside, table], to=STREAM)
    offset = feed.raw(DEADLY, headers, to=STREAM)
    feed.send_one_of_each([beside, table, beside], to=STREAM)
    feed.send(beside, 5)

    pipeline.settle(table, beside)

    assert deadly_letters(pipeline) == {f"{name}/{offset}": DEADLY}
    assert len(owner.logged("lease.failed", stream=name)) == failed + 2, "two workers died, and not one more"
    assert careful(owner, name, "scan") == 1, "what comes after it is read as always"
    feed.send(table, 5)
    pipeline.settle(table)
    assert careful(owner, name, "scan") == 1


def test_a_block_with_the_message_is_rebuilt_the_same_by_its_next_owner(pipeline: Loading) -> None:
    feed, name = pipeline.feed, pipeline.stream(*STREAM)
    table = feed.table("deadly_replay")
    _, headers = feed.encode(table, [{"id": 1}])
    feed.send(table, 5)
    pipeline.settle(table)
    letters = deadly_letters(pipeline)
    victim = pipeline.owner(*STREAM)
    survivor = pipeline.peer(victim)
    before = careful(survivor, name, "replay")
    victim.arm_fault("during-fetch", action="fail", count=None, stream=name)  # until all lies in the log
    pipeline.wait("a refusal", lambda: bool(victim.logged("fault.injected", stream=name, action="fail")))
    feed.send_one_of_each([table, table], to=STREAM)
    offset = feed.raw(DEADLY, headers, to=STREAM)
    feed.send_one_of_each([table, table], to=STREAM)
    victim.arm_fault("after-commit", action="kill-aggregator", stream=name)
    victim.arm_fault("during-fetch", action="delay", seconds=0.01, stream=name)  # in place of the other one
    pipeline.wait("the death of the owner", lambda: not victim.alive)

    pipeline.settle(table)

    assert careful(survivor, name, "replay") > before
    assert not survivor.logged("block.condemned", stream=name)
    assert deadly_letters(pipeline) == {**letters, f"{name}/{offset}": DEADLY}
