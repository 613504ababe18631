"""Parity with kafka-kit's autothrottle: its recorded answers, all of them, exactly; through the command too."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from blockhouse.fleet.cli import app
from blockhouse.throttle.kafka_kit import rate_mb

CASES = Path(os.environ.get("BLOCKHOUSE_CASES") or Path(__file__).parents[4] / "shared" / "cases")
KEYS = ("sources", "destinations", "throttled_replicas", "set", "failures")

WORKED = [
    # net, known, capacity, percent, minimum -> rate (its own tests)
    (70, 0, 100, 80, 10, 24),
    (70, 0, 100, 60, 10, 18),
    (80, 70, 100, 80, 10, 72),
    (80, 70, 100, 60, 10, 54),
    (110, 70, 100, 80, 10, 40),
    (110, 70, 100, 60, 10, 30),
    (200, 70, 100, 80, 10, 10),
    (80, 20, 200, 90, 20, 126),
    (80, 0, 200, 90, 20, 108),
    (80, 0, 200, 80, 20, 96),
    (180, 0, 200, 80, 20, 20),
    (120, 0, 200, 80, 20, 64),
]


@pytest.mark.parametrize(("net", "known", "capacity", "percent", "minimum", "rate"), WORKED)
def test_the_formula_gives_the_worked_values(
    net: float, known: float, capacity: float, percent: float, minimum: float, rate: float
) -> None:
    assert rate_mb(net, known, capacity, percent, minimum) == pytest.approx(rate)


def cases(name: str) -> list[dict[str, Any]]:
    path = CASES / name
    if not path.exists():
        pytest.skip(f"{path} is not here")
    return [json.loads(line) for line in path.read_text().splitlines()[1:]]


@pytest.mark.parametrize(("name", "count"), [("autothrottle.jsonl", 340), ("autothrottle-named.jsonl", 10)])
def test_replay_prints_what_the_original_answered(name: str, count: int) -> None:
    expected = [case["expect"] for case in cases(name)]
    result = CliRunner().invoke(app, ["throttle", "replay", str(CASES / name)])
    assert result.exit_code == 0, result.output
    answers = [json.loads(line) for line in result.stdout.splitlines()]
    assert len(answers) == len(expected) == count
    for answer, expected_answer in zip(answers, expected, strict=True):
        if isinstance(expected_answer, dict):
            assert answer == expected_answer
        else:
            assert answer == [{key: interval[key] for key in KEYS} for interval in expected_answer]


def test_replay_names_the_line_and_key_that_it_cannot_read(tmp_path: Path) -> None:
    good = {
        "id": "one", "kind": "headroom", "net": 70, "prev": 0, "role": "leader", "type": "m",
        "config": {"min_rate": 10, "max_tx_pct": 80, "max_rx_pct": 60, "change_threshold_pct": 10,
                   "failure_threshold": 1, "cleanup_after": 60, "capacities": {"m": 100}},
    }  # fmt: skip
    file = tmp_path / "cases.jsonl"
    lines = [json.dumps({"about": "a note"}), json.dumps(good), json.dumps({**good, "config": {}}), "{"]
    file.write_text("\n".join(lines))
    result = CliRunner().invoke(app, ["throttle", "replay", str(file)])
    assert result.exit_code != 0
    assert [json.loads(line) for line in result.stdout.splitlines()] == [{"rate_mb": 24.0}]
    assert str(result.exception) == f"{file} line 3: min_rate is missing\n{file} line 4: it is not JSON"
