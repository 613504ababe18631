"""`python -m tests.mutations`: applies each patch to a copy, runs its tests there, and fails when they pass.

All of them take half an hour; `--sample 60` takes as many at random, repeated by SEED=n. With `--scenarios` it is the
scenarios that must notice, of those patches that name one: some minutes each, one at a time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from random import Random
from secrets import randbelow

from e2e.cluster import ClusterError
from e2e.cluster.binaries import Binaries
from tests.mutations.mutation import Mutation, read_all

ROOT = Path(__file__).parents[2]
COPIED = ("core", "aggregator", "mirror", "operator", "tests", "e2e", "docs", "examples", "pyproject.toml")
FOR_SCENARIOS = ("charts", "crds", "scripts")
"""Besides."""
SOURCES = ("core", "aggregator", "mirror", "operator", "")
PASSED, FAILED = 0, 1
"""Pytest's exit codes; any other one means that the tests did not run."""
PATIENCE, PATIENCE_WITH_ALL = 300, 1200
"""Seconds for the tests of one mutation, and for those of all one after another."""
AT_ONCE = 2
PATIENCE_WITH_SCENARIO, PATIENCE_WITH_SCENARIOS = 900, 3600
"""The same for scenarios, which begin with a Kubernetes, two Kafka clusters and a ZooKeeper."""
NOT_BUILT = 3
"""Exit code where the programs of a Kubernetes are missing, that of scripts/cluster-binaries."""


@dataclass(frozen=True, slots=True)
class Outcome:
    noticed: bool
    text: str
    seconds: float = 0.0


@contextmanager
def copy_of_the_tree() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(prefix="blockhouse-mutation-") as folder:
        copy = Path(folder)
        for name in (*COPIED, *FOR_SCENARIOS):
            if (ROOT / name).is_dir():
                shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__", ".*cache"))
            else:
                shutil.copy(ROOT / name, copy / name)
        yield copy


def run_tests(copy: Path, tests: tuple[str, ...], patience: float = PATIENCE) -> subprocess.CompletedProcess[str]:
    """Pytest in the copy, whose packages come before the installed ones. LONG_TESTS leaves none of them out."""
    path = os.pathsep.join(str(copy / source) for source in SOURCES)
    environment = {**os.environ, "PYTHONPATH": path, "PYTHONDONTWRITEBYTECODE": "1", "LONG_TESTS": "1"}
    options = ("-q", "-x", "-p", "no:cacheprovider", f"--timeout={patience:.0f}")
    command = [sys.executable, "-m", "pytest", *options, *tests]
    return subprocess.run(
        command, cwd=copy, env=environment, capture_output=True, text=True, timeout=patience, check=False
    )


def try_out(mutation: Mutation, *, scenarios: bool = False) -> Outcome:
    """Apply the patch to a copy and see whether each of its tests fails, or each of its scenarios."""
    patience = PATIENCE_WITH_SCENARIO if scenarios else PATIENCE
    began = time.monotonic()
    seen: list[str] = []
    with copy_of_the_tree() as copy:
        environment = {**os.environ, "GIT_CEILING_DIRECTORIES": str(copy.parent)}
        applied = subprocess.run(
            ["git", "apply", str(mutation.path)], cwd=copy, env=environment, capture_output=True, text=True, check=False
        )
        if applied.returncode:
            return Outcome(False, f"the patch does not apply any more:\n{applied.stderr.strip()}")
        for test in mutation.scenarios if scenarios else mutation.tests:
            try:
                result = run_tests(copy, (test,), patience)
            except subprocess.TimeoutExpired:
                return Outcome(False, f"{test} did not end within {patience} s")
            if result.returncode == PASSED:
                return Outcome(False, f"{test} still passes")
            if result.returncode != FAILED:
                return Outcome(False, f"{test} did not run:\n{result.stdout[-2000:]}{result.stderr[-2000:]}")
            seen.append(next((line for line in result.stdout.splitlines() if line.startswith("E  ")), ""))
    return Outcome(True, " | ".join(line[1:].strip() for line in seen), time.monotonic() - began)


def baseline(mutations: list[Mutation], *, scenarios: bool = False) -> str | None:
    """What fails without any patch: then a failure with one would prove nothing."""
    tests = tuple(sorted({test for one in mutations for test in (one.scenarios if scenarios else one.tests)}))
    with copy_of_the_tree() as copy:
        result = run_tests(copy, tests, PATIENCE_WITH_SCENARIOS if scenarios else PATIENCE_WITH_ALL)
    return None if result.returncode == PASSED else result.stdout[-4000:] + result.stderr[-2000:]


def sampled(mutations: list[Mutation], count: int | None, seed: int) -> list[Mutation]:
    """So many of them, in their order, the same for a seed; all without a count."""
    if count is None or count >= len(mutations):
        return mutations
    emit(f"mutate: SEED={seed}, {count} of {len(mutations)}")
    chosen = set(Random(seed).sample(range(len(mutations)), count))
    return [mutation for number, mutation in enumerate(mutations) if number in chosen]


def emit(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def with_scenarios(mutations: list[Mutation]) -> list[Mutation]:
    """Those that a scenario notices. Raises ValueError where there are none, ClusterError without a Kubernetes."""
    found = [mutation for mutation in mutations if mutation.scenarios]
    if not found:
        raise ValueError("none of these mutations names a scenario")
    Binaries.find()
    return found


def chosen(options: argparse.Namespace) -> list[Mutation]:
    """What is asked for. Raises as `with_scenarios`, and ValueError for a word that names none."""
    found = read_all(options.words)
    if options.scenarios:
        found = with_scenarios(found)
    return sampled(found, options.sample, int(os.environ.get("SEED") or randbelow(1 << 31)))


def try_all(mutations: list[Mutation], *, scenarios: bool) -> int:
    """Exit code: 1 when something is not noticed, or fails without any mutation."""
    began = time.monotonic()
    broken = baseline(mutations, scenarios=scenarios)
    if broken is not None:
        emit(f"mutate: the tests fail without any mutation\n{broken}")
        return 1
    missed: list[str] = []
    with ThreadPoolExecutor(1 if scenarios else AT_ONCE) as pool:
        outcomes = pool.map(partial(try_out, scenarios=scenarios), mutations)
        for mutation, outcome in zip(mutations, outcomes, strict=True):
            mark = "ok  " if outcome.noticed else "MISS"
            line = f'{mark} {mutation.name} ({outcome.seconds:.1f} s): without "{mutation.removes}": {outcome.text}'
            emit(line)
            if not outcome.noticed:
                missed.append(line)
    for line in missed:  # again, at the end, for a long log is often cut
        emit(line)
    emit(f"mutate: {len(mutations) - len(missed)} of {len(mutations)} noticed in {time.monotonic() - began:.0f} s")
    return 1 if missed else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.mutations", description=__doc__)
    parser.add_argument("words", nargs="*", help="only mutations whose name contains one of these")
    parser.add_argument("--sample", type=int, metavar="N", help="only N of them, at random")
    parser.add_argument("--scenarios", action="store_true", help="scenarios must notice; needs a Kubernetes' programs")
    options = parser.parse_args()
    try:
        mutations = chosen(options)
    except ValueError as error:
        emit(f"mutate: {error}")
        return 2
    except ClusterError as error:
        emit(f"mutate: {error}")
        return NOT_BUILT
    return try_all(mutations, scenarios=options.scenarios)


if __name__ == "__main__":
    sys.exit(main())
