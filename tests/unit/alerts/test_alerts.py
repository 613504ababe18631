"""The alert rules that the chart ships: Prometheus accepts them, each fires on bad series and not on good ones, asks
for metrics that exist and has its section in docs/alerts.md."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from scripts.metrics_page import families

ROOT = Path(__file__).parents[3]
RULES = ROOT / "charts" / "blockhouse" / "files" / "alerts.yaml"
PAGE = (ROOT / "docs" / "alerts.md").read_text()
ALERTS = {rule["alert"]: rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]}
CASES = yaml.safe_load(Path(__file__).with_name("series.yaml").read_text())


def promtool(*arguments: str) -> str:
    done = subprocess.run(["promtool", *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_prometheus_accepts_every_rule() -> None:
    assert f"SUCCESS: {len(ALERTS)} rules found" in promtool("check", "rules", str(RULES))


def test_every_alert_has_series_that_fire_it_and_series_that_do_not() -> None:
    assert {case["alert"] for case in CASES} == set(ALERTS)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["alert"])
def test_it_fires_on_bad_series_and_not_on_good_ones(case: dict[str, Any], tmp_path: Path) -> None:
    tests = []
    for kind in ("bad", "good"):
        fired = [{"exp_labels": case["labels"], "exp_annotations": _annotations(case)}] if kind == "bad" else []
        alerts = [{"eval_time": case["at"], "alertname": case["alert"], "exp_alerts": fired}]
        series = [dict(zip(("series", "values"), _split(text), strict=True)) for text in case[kind]]
        tests.append({"interval": "1m", "input_series": series, "alert_rule_test": alerts})
    file = tmp_path / "test.yaml"
    file.write_text(yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}))
    promtool("test", "rules", str(file))


def _split(text: str) -> tuple[str, str]:
    series, _, values = text.partition("} ")
    return f"{series}}}", values


def _annotations(case: dict[str, Any]) -> dict[str, str]:
    return {"runbook": f"docs/alerts.md#{case['alert'].lower()}", "summary": case["summary"]}


def test_every_alert_has_a_section_and_every_section_an_alert() -> None:
    assert re.findall(r"^## (\w+)$", PAGE, re.MULTILINE) == list(ALERTS)


@pytest.mark.parametrize("alert", sorted(ALERTS))
def test_it_asks_for_metrics_that_exist(alert: str) -> None:
    known = {sample for family in families() for sample in family.samples}
    asked = set(re.findall(r"\bblockhouse_\w+", ALERTS[alert]["expr"]))
    assert asked
    assert asked - known == set()
