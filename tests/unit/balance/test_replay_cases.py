"""Recorded cases of Brooklin's assigner: parity with all of them, and our own assignment against theirs."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from blockhouse.balance import brooklin, replay
from blockhouse.balance.model import Assignment
from blockhouse.balance.packing import giants, limit
from blockhouse.balance.sticky import renew
from blockhouse_mirror.commands.mirror import app

REPOSITORY = Path(__file__).parents[3]
CASES = Path(os.environ.get("BLOCKHOUSE_CASES") or REPOSITORY.parent / "shared" / "cases") / "lbmm.jsonl"
TOLERANCE = 0.10

pytestmark = pytest.mark.skipif(not CASES.exists(), reason="the recorded cases are not here")


@pytest.fixture(scope="module")
def cases() -> list[dict[str, Any]]:
    found = [json.loads(line) for line in CASES.read_text().splitlines()[1:]]
    assert len(found) == 300
    return found


def test_parity_with_every_case(cases: list[dict[str, Any]]) -> None:
    result = CliRunner().invoke(app, ["replay", str(CASES), "--parity"])
    assert result.exit_code == 0, result.output
    answers = {answer["id"]: answer for answer in map(json.loads, result.output.splitlines())}
    wrong = [case["id"] for case in cases if not agrees(answers[case["id"]], case["expect"])]
    assert (wrong, len(answers)) == ([], 300)


def agrees(answer: dict[str, Any], expect: dict[str, Any]) -> bool:
    """As the original: the same keys, equal values; where a tie made its assignment arbitrary that is not compared."""
    arbitrary = {"exact"} | ({"assignment_without_unknown"} if not expect.get("exact") else set())
    return answer.keys() - {"id"} == expect.keys() and all(
        answer[name] == value for name, value in expect.items() if name not in arbitrary
    )


def test_our_heaviest_task_is_never_above_the_originals_and_only_what_must_moves(
    cases: list[dict[str, Any]],
) -> None:
    """Measured as the original does (unknown partitions weigh nothing), and with their default."""
    compared = improved = moved_in_all = 0
    for document in cases:
        if "exact" not in document["expect"]:
            continue
        _, case = replay.parse(document)
        weights = {key: case.rate(key) for key in case.partitions}
        theirs = brooklin.assign(case)
        before = Assignment(case.tasks)
        after = renew(before, list(before), weights, TOLERANCE, case.most_partitions, guessed=set(theirs.unknown))
        known = {key: 0.0 if key in set(theirs.unknown) else rate for key, rate in weights.items()}
        heaviest, original = max(after.loads(known).values()), max(theirs.loads.values())
        assert heaviest <= original * (1 + 1e-9), document["id"]
        dealt = (theirs.loads[task] + case.default_kb * n for task, n in theirs.unknown_by_task.items())
        assert max(after.loads(weights).values()) <= max(dealt) * (1 + 1e-9), document["id"]
        moved_in_all += check_moves(before, after, weights, theirs, document["id"])
        compared, improved = compared + 1, improved + (heaviest < original * (1 - 1e-9))
    assert compared == 268
    assert improved > 20, "our step is never better: it does not run"
    assert moved_in_all > 100


def check_moves(
    before: Assignment, after: Assignment, weights: dict[Any, float], theirs: brooklin.Answer, name: str
) -> int:
    """Each task that gave was above the limit with what it had to keep, and would be with its largest gift back."""
    alone = giants(weights, len(before), TOLERANCE)
    most = limit(weights, len(before), TOLERANCE, alone) * (1 - 1e-6)
    moved = after.moved_from(before)
    owners, now = before.owners(), after.loads(weights)
    for task in {owners[key] for key in moved}:
        if not set(alone) & set(before[task]):
            gifts = [weights[key] for key in moved if owners[key] == task]
            assert now[task] + max(gifts) > most, name
            assert now[task] + sum(gifts) > most, name
    return len(moved)


def test_a_bad_line_is_reported_and_the_others_are_answered(tmp_path: Path) -> None:
    good = {"id": "good", "partitions": ["t-0"], "throughput_kb": {"t-0": 10}, "tasks": {"a": []}}
    lines = ["{", "[]", json.dumps({"id": "x", "partitions": ["nodash"]}), json.dumps(good)]
    lines += [json.dumps(good | {"id": "nan", "throughput_kb": {"t-0": float("nan")}})]
    lines += [json.dumps(good | {"id": "twice", "tasks": {"a": ["t-0"], "b": ["t-0"]}})]
    file = tmp_path / "cases.jsonl"
    file.write_text("\n".join(lines))
    result = CliRunner().invoke(app, ["replay", str(file)])
    assert result.exit_code == 1
    assert [json.loads(line)["id"] for line in result.stdout.splitlines()] == ["good"]
    assert [f"{file}:{n}:" in result.stderr for n in (1, 2, 3, 4, 5, 6)] == [True, True, True, False, True, True]
