"""Which mutations are tried: a sample that can be repeated, all of their tests, or their scenarios alone."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from e2e.cluster import ClusterError
from e2e.cluster.binaries import Binaries
from tests.mutations import __main__ as program
from tests.mutations.__main__ import FAILED, NOT_BUILT, ROOT, Outcome, main, run_tests, sampled
from tests.mutations.mutation import Mutation, read, read_all

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


HEADER = "Removes: a claim\nTest: tests/x.py::test\nScenario: {}\n\n--- a/x\n"


def test_a_patch_names_the_scenarios_that_notice_it(tmp_path: Path) -> None:
    path = tmp_path / "x.patch"
    path.write_text(HEADER.format("e2e/scenarios/test_x.py::test"))

    found = read(path)

    assert (found.tests, found.scenarios) == (("tests/x.py::test",), ("e2e/scenarios/test_x.py::test",))
    path.write_text(HEADER.format("tests/x.py::test"))
    with pytest.raises(ValueError, match="no test of e2e/scenarios/"):
        read(path)


def test_every_scenario_of_a_patch_exists() -> None:
    for mutation in read_all([]):
        for scenario in mutation.scenarios:
            file, _, name = scenario.partition("::")
            assert f"def {name}(" in (ROOT / file).read_text(), f"{mutation.name}: {scenario}"


def asked(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> int:
    monkeypatch.setattr("sys.argv", ["mutations", *arguments])
    return main()


def test_scenarios_are_tried_alone_and_of_the_patches_that_name_one(monkeypatch: pytest.MonkeyPatch) -> None:
    tried: list[tuple[str, bool]] = []

    def noticed(mutation: Mutation, *, scenarios: bool) -> Outcome:
        tried.append((mutation.name, scenarios))
        return Outcome(True, "")

    known = [ALL[0], replace(ALL[1], scenarios=("e2e/scenarios/test_x.py::test",))]
    monkeypatch.setattr(program, "read_all", lambda _: known)
    monkeypatch.setattr(program, "baseline", lambda *_, **__: None)
    monkeypatch.setattr(program, "try_out", noticed)
    monkeypatch.setattr(Binaries, "find", lambda: Binaries(Path()))

    assert asked(monkeypatch, "--scenarios") == 0
    assert tried == [("01", True)]
    assert asked(monkeypatch) == 0
    assert tried[1:] == [("00", False), ("01", False)]


def test_without_a_kubernetes_it_states_what_to_build(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def missing() -> Binaries:
        raise ClusterError("not built: kube: run scripts/cluster-binaries")

    monkeypatch.setattr(Binaries, "find", missing)

    assert asked(monkeypatch, "--scenarios") == NOT_BUILT
    assert "mutate: not built: kube: run scripts/cluster-binaries" in capsys.readouterr().out
