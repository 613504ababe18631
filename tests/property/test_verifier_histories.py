"""No alarm for any legal history; the right alarm, with the right offsets, for each defect that is put into one.

`SEED=n HISTORIES=100000 .venv/bin/pytest tests/property/test_verifier_histories.py` takes others, and more of them.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Sequence
from random import Random

import pytest

from blockhouse_aggregator.verifier.anomaly import LASTING, Finding, Kind, LogBegins
from blockhouse_aggregator.verifier.checks.sequence import Known, Lacking, judge
from tests.property.verifier_defects import DEFECTS, Defect
from tests.property.verifier_histories import Commit, of_model, of_owners, seeds, worn

SEED = int(os.environ.get("SEED", "1"))
HISTORIES = int(os.environ.get("HISTORIES", "2000"))


def alarms(history: Sequence[Commit]) -> list[Finding]:
    """Everything the verifier finds in a history."""
    found: list[Finding] = []
    known: Known | None = None
    for commit in history:
        judged = judge(known, commit.offset, commit.text, Lacking(commit.missing))
        known = judged.known
        found += [finding for finding in judged.findings if not excused(finding, commit)]
    return found


def excused(finding: Finding, commit: Commit) -> bool:
    """As the cluster would answer at once; what is a hole and where an epoch ends, these histories do not know."""
    if isinstance(finding.unless, LogBegins):
        return commit.log_begin >= finding.unless.at
    return finding.unless is not None


@pytest.mark.timeout(14400)
@pytest.mark.parametrize(("source", "count"), [(of_model, HISTORIES // 5), (of_owners, HISTORIES * 4 // 5)])
def test_no_alarm_for_a_legal_history(source: Callable[[int], Sequence[Commit]], count: int) -> None:
    lengths: Counter[bool] = Counter()
    for seed in seeds(SEED, count):
        history = worn(source(seed), Random(seed))
        found = alarms(history)
        assert found == [], f"SEED={SEED}, history {seed}: {found}"
        lengths[len(history) > 5] += 1
    assert lengths[True] > count // 2, "histories of a few commits prove nothing"


@pytest.mark.parametrize("defect", DEFECTS, ids=lambda defect: defect.__name__)
def test_a_defect_is_found_where_it_is(defect: Defect) -> None:
    done = 0
    for seed in seeds(SEED, max(100, HISTORIES // 10)):
        random = Random(seed)
        history = of_owners(seed)
        if not history:
            continue
        at = random.randrange(len(history))
        injected = defect(history[: at + 1], random)
        if injected is None:
            continue
        (offset, text), expected = injected
        judged = judge(_known(history[: at + 1]), offset, text, Lacking(0))
        found = {(f.kind, f.table, f.first, f.last) for f in judged.findings}
        sought = (expected.kind, expected.table, expected.first, expected.last)
        assert sought in found, f"SEED={SEED}, history {seed}, after commit {at}: expected {sought}, found {found}"
        done += 1
    assert done > 20, f"the defect fitted {done} histories only"


def test_every_kind_that_a_commit_can_show_is_injected() -> None:
    of_the_log = LASTING | {Kind.TRUNCATED}  # not of a commit alone
    injected: set[Kind] = set()
    for defect in DEFECTS:
        for seed in seeds(SEED, 60):
            history = of_owners(seed)
            made = defect(history, Random(seed)) if history else None
            injected |= {made[1].kind} if made else set()
    assert injected == set(Kind) - of_the_log


def _known(history: Sequence[Commit]) -> Known | None:
    known: Known | None = None
    for commit in history:
        known = judge(known, commit.offset, commit.text, Lacking(commit.missing)).known
    return known
