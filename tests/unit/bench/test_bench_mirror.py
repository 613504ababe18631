"""Figures of a mirror: ratios are of one round, pauses are seen wherever they lie, and every name is checked."""

from __future__ import annotations

import numpy as np
import pytest
import typer

from bench.mirror import chosen, pause_line
from bench.mirrors.field import RECORD, VALUE, values
from bench.mirrors.rounds import Run, summarize
from bench.mirrors.steady import Pause, Seen


def run(name: str, number: int, seconds: float, cpu: float = 2.0) -> Run:
    return Run(name, number, 1_000_000, seconds, cpu, 1.0, 0.0)


def test_ratios_are_to_the_baseline_of_the_same_round() -> None:
    """The second round is twice as slow for all: a ratio of medians would hide who was the faster one."""
    runs = [run("loop", 1, 10), run("ours", 1, 5, 3.0), run("loop", 2, 20), run("ours", 2, 20, 1.0), run("ours", 3, 1)]

    loop, ours = summarize(runs, "loop")

    assert (loop.name, loop.ratio, ours.runs) == ("loop", 1.0, 3)
    assert (ours.ratio, ours.lowest_ratio) == (pytest.approx(1.5), 1.0)
    assert ours.cpu_ratio == pytest.approx(1.0)
    assert loop.cpu_per_gigabyte == pytest.approx(2.0 / (1_000_000 * RECORD / 1e9))


def test_without_the_baseline_there_is_no_ratio() -> None:
    (ours,) = summarize([run("ours", 1, 5)], "loop")
    assert (ours.ratio, ours.lowest_ratio, ours.cpu_ratio) == (None, None, None)


@pytest.mark.parametrize(("begin", "end", "gap"), [(0.0, 4.0, 2.0), (0.0, 9.0, 5.0), (3.5, 3.9, 0.4)])
def test_a_pause_counts_at_the_begin_in_the_middle_and_at_the_end(begin: float, end: float, gap: float) -> None:
    at = np.array([1.0, 1.5, 3.0, 4.0])
    seen = Seen(at, np.array([0, 1, 0, 0]), np.zeros(4))
    assert seen.longest_gap(0, begin, end) == pytest.approx(gap)


def test_pauses_in_a_line() -> None:
    assert pause_line([]) == "none"
    assert pause_line([Pause(0, True, 100.0), Pause(1, True, 300.0)]) == "2 times, median 200, longest 300"


def test_a_name_that_does_not_exist_is_refused_and_the_order_is_ours() -> None:
    assert chosen("b, a", ("a", "b", "c"), "part") == ["a", "b"]
    assert chosen("all", ("a", "b"), "part") == ["a", "b"]
    with pytest.raises(typer.BadParameter, match="no part d: there are a, b"):
        chosen("a,d", ("a", "b"), "part")


def test_values_are_the_same_in_every_run() -> None:
    assert values() == values()
    assert {len(value) for value in values()} == {VALUE}
