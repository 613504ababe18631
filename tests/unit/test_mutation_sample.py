"""A sample of mutations can be repeated, and is tried in the order of all of them."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations.__main__ import sampled
from tests.mutations.mutation import Mutation

ALL = [Mutation(f"{number:02}", "a claim", ("tests/x.py::test",), Path("x.patch")) for number in range(40)]


def test_a_seed_repeats_its_sample_in_order(capsys: pytest.CaptureFixture[str]) -> None:
    first, again, other = (sampled(ALL, 10, seed) for seed in (1, 1, 2))

    assert first == again != other
    assert len(first) == 10
    assert first == sorted(first, key=ALL.index)
    assert "SEED=1, 10 of 40" in capsys.readouterr().out


@pytest.mark.parametrize("count", [None, 40, 99])
def test_without_a_smaller_count_all_are_tried(count: int | None) -> None:
    assert sampled(ALL, count, 1) == ALL
