"""Every metric is moved by a test, or it is stated what moves it: tests/moved_families.toml forgets none."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from scripts.metrics_page import families

ROOT = Path(__file__).parents[3]
FOUND = tomllib.loads((ROOT / "tests" / "moved_families.toml").read_text())
LIVES: Mapping[str, Sequence[str]] = FOUND["lives"]
TESTS: Mapping[str, str] = FOUND["tests"]
FAULTS: Mapping[str, str] = FOUND["faults"]


def test_every_metric_is_there_once() -> None:
    named = Counter([*(name for moved in LIVES.values() for name in moved), *TESTS, *FAULTS])

    assert set(named) == {family.name for family in families()}
    assert [name for name, times in named.items() if times > 1] == []


@pytest.mark.parametrize("family", sorted(TESTS))
def test_the_test_of_a_metric_exists(family: str) -> None:
    path, _, name = TESTS[family].partition("::")

    assert f"def {name}(" in (ROOT / path).read_text()
