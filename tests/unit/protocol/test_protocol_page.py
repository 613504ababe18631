"""The page and the code name the same reasons: an operator looks up what the log says."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parents[3]
SOURCES = sorted((ROOT / "aggregator/blockhouse_aggregator/protocol").glob("*.py"))
REASON = re.compile(r"\b(?:Stop|Alarm|Rebuild|_block)\(\s*(?:state, event\.table, )?\"([A-Z]\w+)\"")


def test_every_reason_of_the_code_is_explained_on_the_page() -> None:
    page = (ROOT / "docs/protocol.md").read_text()
    reasons = {reason for source in SOURCES for reason in REASON.findall(source.read_text())}
    assert {"OffsetsReset", "ReplayDiffers", "ReportRejected", "MessagesExpired"} <= reasons
    assert {reason for reason in reasons if f"`{reason}`" not in page} == set()
