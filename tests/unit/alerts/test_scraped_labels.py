"""No label of a metric is overwritten by one that the scrape adds: a program whose metrics have such a label is scraped
by a PodMonitor that honours the program's."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from scripts.metrics_page import families

RENDERED = Path(__file__).parents[2] / "golden" / "chart" / "one-namespace.yaml"
"""The chart with every monitor, as reviewed."""
OF_THE_SCRAPE = {"namespace", "pod", "container", "endpoint", "job", "instance", "service", "node"}
"""Labels that a PodMonitor adds to what it scrapes."""
MONITORS = {
    found["metadata"]["name"]: found
    for found in yaml.safe_load_all(RENDERED.read_text())
    if found["kind"] in {"PodMonitor", "ServiceMonitor"}
}
SCRAPES = {
    "blockhouse-operator": {"operator"},
    "events": {"aggregator", "verifier"},
    "east-mirror": {"mirror"},
}


def test_it_is_known_what_each_monitor_scrapes() -> None:
    assert MONITORS.keys() == SCRAPES.keys()


@pytest.mark.parametrize("monitor", sorted(SCRAPES))
def test_a_program_keeps_its_labels(monitor: str) -> None:
    labels = {label for family in families() if family.program in SCRAPES[monitor] for label in family.labels}
    (endpoint,) = MONITORS[monitor]["spec"]["podMetricsEndpoints"]

    assert endpoint.get("honorLabels", False) == bool(labels & OF_THE_SCRAPE)
