"""The page and the code name the same reasons: an operator looks up what the log names."""

from __future__ import annotations

import re
from pathlib import Path

from blockhouse_aggregator.runtime.figures import Figures
from tests.protocol_model.world import RULES

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "aggregator/blockhouse_aggregator/protocol").glob("*.py"))
REASON = re.compile(r"\b(?:Stop|Alarm|Rebuild|_block)\(\s*(?:state, event\.table, )?\"([A-Z]\w+)\"")


def test_every_reason_of_the_code_is_explained_on_the_page() -> None:
    page = (ROOT / "docs/protocol.md").read_text()
    reasons = {reason for source in SOURCES for reason in REASON.findall(source.read_text())}
    assert {"OffsetsReset", "ReplayDiffers", "ReportRejected", "MessagesExpired"} <= reasons
    assert {reason for reason in reasons if f"`{reason}`" not in page} == set()


def test_every_metric_of_the_page_exists() -> None:
    page = (ROOT / "docs/protocol.md").read_text()
    registry = Figures().registry
    figures = {name for metric in registry.collect() for name in (metric.name, f"{metric.name}_total")}
    named = {name for name in re.findall(r"`(blockhouse_[a-z_]+)", page) if name != "blockhouse_aggregator"}
    assert len(named) >= 5
    assert named - figures == set()


def test_every_rule_of_the_page_is_one_of_the_model_and_the_other_way_round() -> None:
    page = (ROOT / "docs/protocol.md").read_text()
    table = page.split("| rule | without it |")[1].split("\n\n")[0]
    assert set(re.findall(r"\(`([a-z-]+)`\) \|", table)) == RULES
