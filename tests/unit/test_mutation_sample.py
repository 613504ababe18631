"""A sample of mutations can be repeated, is tried in the order of all of them, and runs every test that it names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.mutations.__main__ import FAILED, run_tests, sampled
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


LONG = """import pytest


@pytest.mark.long
def test_long() -> None:
    raise AssertionError("it ran")
"""


def test_a_share_of_the_long_tests_leaves_none_of_a_mutation_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LONG_TESTS", "0.0001")
    (tmp_path / "pyproject.toml").write_text('[tool.pytest.ini_options]\nmarkers = ["long"]\n')
    (tmp_path / "conftest.py").write_text("from tests.integration.conftest import pytest_collection_modifyitems\n")
    (tmp_path / "test_long.py").write_text(LONG)

    assert run_tests(tmp_path, ("test_long.py",)).returncode == FAILED
