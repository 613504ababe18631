"""What the figures of a race are worth: paired ratios, and costs that belong to one competitor."""

from __future__ import annotations

import pytest

from bench.race import Run, paired_ratio, summarize
from bench.report import run_line, run_titles, summary_table
from bench.testbed import ServerCpu


def run(name: str, number: int, seconds: float, *, loader: float | None = 1.0, merges: float = 0.0) -> Run:
    return Run(name, number, 2_000_000, seconds, ServerCpu(0.5, 0.25, 3.25), loader, merges, 0.1, 4_000)


def test_costs_are_per_million_rows_of_all_servers_and_the_loader() -> None:
    found = run("blockhouse", 1, 4.0, loader=2.0, merges=1.0)
    assert found.rows_per_second == 500_000
    assert (found.loader_per_million, found.machine, found.settled) == (1.0, 3.0, 3.5)


def test_a_loader_inside_the_server_has_no_costs_of_its_own() -> None:
    found = run("engine", 1, 4.0, loader=None)
    assert (found.loader_per_million, found.machine) == (None, 2.0)


def test_ratios_are_of_the_same_round() -> None:
    # given a machine that is twice as slow in the second round
    limits = [run("limit", 1, 4.0), run("limit", 2, 8.0)]
    ours = [run("blockhouse", 1, 5.0), run("blockhouse", 2, 10.0)]
    # then the ratio does not show it
    assert paired_ratio(ours, limits) == pytest.approx(0.8)


def test_a_round_without_the_other_contestant_has_no_ratio() -> None:
    assert paired_ratio([run("blockhouse", 1, 5.0), run("blockhouse", 2, 1.0)], [run("limit", 1, 4.0)]) == 0.8
    assert paired_ratio([run("blockhouse", 1, 5.0)], []) is None


def test_the_summary_has_medians_in_the_order_of_the_first_runs() -> None:
    runs = [run("limit", n, 4.0) for n in (1, 2, 3)]
    runs += [run("loop", n, seconds, loader=cpu) for n, seconds, cpu in ((1, 8, 2.0), (2, 40, 40.0), (3, 10, 4.0))]
    first, second = summarize(runs, limit="limit", loop="loop")
    assert (first.name, first.to_limit) == ("limit", 1.0)
    assert first.to_loop == pytest.approx(2.5)
    assert (second.name, second.runs, second.rows_per_second, second.loader) == ("loop", 3, 200_000, 2.0)
    assert second.to_limit == pytest.approx(0.4)


def test_columns_stand_below_their_titles() -> None:
    line = run_line(run("blockhouse-growing", 3, 4.0, loader=None))
    assert [line.index("|"), line.rindex("|")] == [run_titles().index("|"), run_titles().rindex("|")]
    table = summary_table(summarize([run("limit", 1, 4.0)], limit="limit", loop="loop"), {"limit": "The limit"})
    head, row = table.splitlines()[-2:]
    assert len(head) == len(row)
