"""Two workers that died at one place make the next order careful; progress makes orders normal again."""

from __future__ import annotations

import pytest

from blockhouse_aggregator.gate.messages import Bye, Rebuilt, Replay, ReplayBlock, Scan, Sealed, Stop, Trouble
from blockhouse_aggregator.runtime.stream.worker_crashes import Order, WorkerCrashes
from tests.unit.blocks.test_scan_rounds import order

SEALED = Sealed(round=1, start=0, stop=5, tables=(), headless=0, leader_epoch=-1, log_end=5, elapsed=0.1)
STREAM = "a/events/0"
TROUBLE = Trouble(reason="Retryable", message="", retryable=True)


def replay(*begins: int) -> Replay:
    return Replay(round=1, blocks=tuple(ReplayBlock(table=f"d.t{b}", begin=b, end=b + 9, revision=1) for b in begins))


def careful(sent: Order) -> bool:
    return not isinstance(sent, Stop) and sent.careful


def die(deaths: WorkerCrashes, over: Order, times: int) -> list[bool]:
    """Whether each of the orders, none of which is answered, was careful."""
    found = []
    for _ in range(times):
        sent = deaths.given(over)
        found.append(careful(sent))
        deaths.heard(sent, None, dropped=False)
    return found


@pytest.mark.parametrize("over", [order(7), replay(3), replay(3, 20)])
def test_the_third_order_at_one_place_is_careful(over: Order) -> None:
    assert die(WorkerCrashes(STREAM), over, 4) == [False, False, True, True]


def test_a_hung_worker_whose_conversation_was_cut_off_counts() -> None:
    deaths = WorkerCrashes(STREAM)
    deaths.given(order(7))
    deaths.given(order(7))  # nothing was heard of the first, not even that its task has gone
    assert careful(deaths.given(order(7)))


def test_an_answer_makes_orders_normal_again() -> None:
    deaths = WorkerCrashes(STREAM)
    die(deaths, order(7), 2)
    deaths.heard(deaths.given(order(7)), SEALED, dropped=False)
    assert die(deaths, order(7), 3) == [False, False, True]


def test_another_place_counts_for_itself() -> None:
    deaths = WorkerCrashes(STREAM)
    die(deaths, order(7), 2)
    assert not careful(deaths.given(order(8)))
    assert not careful(deaths.given(order(7).model_copy(update={"stop": 7}))), "a scan that catches up"
    assert not careful(deaths.given(replay(7)))
    assert careful(deaths.given(order(7)))


def test_a_block_that_is_rebuilt_alone_proves_nothing_about_another() -> None:
    deaths = WorkerCrashes(STREAM)
    die(deaths, replay(3), 2)
    deaths.heard(deaths.given(replay(20)), Rebuilt(round=1, blocks=()), dropped=False)
    assert careful(deaths.given(replay(3, 20)))


@pytest.mark.parametrize("answer", [TROUBLE, Bye()])
def test_a_worker_that_lives_without_progress_leaves_the_count_as_it_is(answer: Trouble | Bye) -> None:
    deaths = WorkerCrashes(STREAM)
    for _ in range(3):
        deaths.heard(deaths.given(order(7)), answer, dropped=False)
    assert die(deaths, order(7), 2) == [False, False]
    deaths.heard(deaths.given(order(7)), answer, dropped=False)
    assert careful(deaths.given(order(7)))


def test_a_dropped_stream_is_no_death() -> None:
    deaths = WorkerCrashes(STREAM)
    for _ in range(3):
        deaths.heard(deaths.given(order(7)), None, dropped=True)
    assert not careful(deaths.given(order(7)))


def test_the_order_to_stop_is_never_careful() -> None:
    assert die(WorkerCrashes(STREAM), Stop(), 3) == [False, False, False]


def test_a_careful_order_is_otherwise_the_same() -> None:
    deaths, plain = WorkerCrashes(STREAM), order(7)
    die(deaths, plain, 2)
    sent = deaths.given(plain)
    assert isinstance(sent, Scan)
    assert sent.model_copy(update={"careful": False}) == plain
