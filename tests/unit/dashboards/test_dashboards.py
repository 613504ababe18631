"""The dashboards that the chart ships: made from the code, accepted by Prometheus, about metrics and labels that exist,
and none of the metrics is left without a place that shows it."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest
import yaml

from e2e.chaos.pictures import with_all
from scripts.dashboards.__main__ import FOLDER, PAGE, page
from scripts.dashboards.boards import BOARDS
from scripts.dashboards.panels import Board, Listing, Number, Panel, Series, render
from scripts.metrics_page import ALERTS, families

OF_THE_SCRAPE = {"namespace", "pod", "instance", "job", "ingest_blockhouse_dev_pipeline"}
"""Labels that the scraping Prometheus adds, in Kubernetes by the chart's PodMonitor."""
PROCESS = ("process_cpu_seconds_total", "process_resident_memory_bytes")
"""Of Prometheus' own client."""
LABELS = {name: set[str]() for name in PROCESS}
LABELS["ALERTS"] = {"alertname", "alertstate", "severity"}
"""What Prometheus itself keeps of the rules."""
LABELS |= {sample: set(family.labels) for family in families() for sample in family.samples}
PANELS = [pytest.param(panel, id=f"{board.uid}: {panel.title}") for board in BOARDS for panel in board.panels()]
EXPRESSIONS = [query.expr for board in BOARDS for panel in board.panels() for query in panel.queries]


def metrics_of(text: str) -> set[str]:
    return set(re.findall(r"\b(?:(?:blockhouse|process)_\w+|ALERTS\b)", text)) - {"ingest_blockhouse_dev_pipeline"}


def test_the_files_are_those_of_the_code() -> None:
    """`scripts/generate` writes them."""
    assert {file.name: file.read_text() for file in FOLDER.iterdir()} == {f"{b.uid}.json": render(b) for b in BOARDS}
    assert PAGE.read_text() == page()


def test_prometheus_accepts_every_query(tmp_path: Path) -> None:
    rules = [{"record": f"panel:{number}", "expr": with_all(expr, "5m")} for number, expr in enumerate(EXPRESSIONS)]
    file = tmp_path / "panels.yaml"
    file.write_text(yaml.safe_dump({"groups": [{"name": "panels", "rules": rules}]}))

    done = subprocess.run(["promtool", "check", "rules", str(file)], capture_output=True, text=True, check=False)

    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_asks_for_what_exists(panel: Panel) -> None:
    for query in panel.queries:
        asked = metrics_of(query.expr)
        assert asked
        assert asked - set(LABELS) == set()
        known = OF_THE_SCRAPE.union(*(LABELS[metric] for metric in asked))
        assert set(re.findall(r"\{\{(\w+)\}\}", query.legend)) - known == set()
        assert set(re.findall(r'(\w+)=~"\$', query.expr)) - known == set()


@pytest.mark.parametrize("panel", PANELS)
def test_a_panel_states_what_it_means(panel: Panel) -> None:
    assert panel.text.endswith(".")
    if isinstance(panel, Series) and len(panel.queries) > 1:
        assert all(query.legend for query in panel.queries)
    if isinstance(panel, Number | Listing):
        assert len(panel.queries) == 1


def test_every_page_that_a_panel_names_exists() -> None:
    named = {page for board in BOARDS for panel in board.panels() for page in re.findall(r"docs/[\w.]+", panel.text)}

    assert named
    assert [page for page in named if not (FOLDER.parents[3] / page.rstrip(".")).is_file()] == []


@pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.uid)
def test_every_choice_of_a_board_is_used_and_none_is_missing(board: Board) -> None:
    used = {name for expr in EXPRESSIONS_OF[board.uid] for name in re.findall(r"\$(?!__)(\w+)", expr)}

    assert used == {variable.name for variable in board.variables}


EXPRESSIONS_OF = {board.uid: [q.expr for panel in board.panels() for q in panel.queries] for board in BOARDS}


def test_every_metric_has_a_panel_or_an_alert() -> None:
    shown = set().union(*map(metrics_of, EXPRESSIONS)) | metrics_of(ALERTS.read_text())

    unseen = {family.name for family in families() if not shown & set(family.samples)}
    assert unseen == set()


def test_grafana_gets_a_data_source_a_grid_and_a_title_for_every_panel() -> None:
    for board in BOARDS:
        page = json.loads(render(board))
        panels = [panel for panel in page["panels"] if panel["type"] != "row"]
        assert len(panels) == len(list(board.panels()))
        for panel in panels:
            assert panel["datasource"] == {"type": "prometheus", "uid": "${datasource}"}
            assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
            assert panel["title"]
            assert all(target["expr"] for target in panel["targets"])
