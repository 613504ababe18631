"""The drawing of loads: what is in the docs is what the code makes, and it shows the same load on both sides."""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from pathlib import Path

import pytest

from bench.balance import TOLERANCE, a_day, plot, rates
from bench.balance_plot import STEPS, days, drawn

WEIGHTS = rates(200, 1)
TASKS = [f"task{n}" for n in range(5)]
DRAWING = Path(__file__).parents[3] / "docs" / "balance.svg"


def test_both_sides_carry_the_same_load_and_the_one_by_load_is_more_even() -> None:
    found = days(WEIGHTS, TASKS, 0.1, 1)
    by_count, by_load = found.by_count, found.by_load

    assert [sum(row) for row in by_count.loads] == pytest.approx([sum(row) for row in by_load.loads])
    assert by_load.ratio < by_count.ratio
    assert by_count.moved == 0


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_a_day_by_load_stays_within_the_tolerance_between_rebalances_too(seed: int) -> None:
    """Just after each it is within half of it; just before it, only a task of nearly one partition may be above."""
    found = a_day(seed)

    assert not found.giant
    assert found.by_load.settled <= 1 + TOLERANCE / 2 + 1e-6
    assert found.by_load.ratio <= 1 + TOLERANCE
    assert found.by_load.moved > 0
    assert max(found.by_load.moves) <= 0.02 * 1000


def test_a_line_for_each_task_on_each_side() -> None:
    root = ElementTree.fromstring(drawn(days(WEIGHTS, TASKS, 0.1, 1), len(WEIGHTS)))

    lines = [each.attrib["points"].split() for each in root if each.tag.endswith("polyline")]
    assert len(lines) == 2 * len(TASKS)
    assert {len(points) for points in lines} == {STEPS}


def test_the_drawing_in_the_docs_is_up_to_date(tmp_path: Path) -> None:
    plot(tmp_path / "made.svg")

    assert (tmp_path / "made.svg").read_text() == DRAWING.read_text()
