"""Panels of the shipped dashboards as pictures: what Prometheus is asked, and what is drawn of its answers."""

from __future__ import annotations

import json
import math
import re
import urllib.parse
import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from pathlib import Path

import pytest

from e2e.chaos.alerting import Alerting
from e2e.chaos.pictures import FOLDER, SHOWN, Panel, Query, lines, panel, panels_drawn, picture, value_in, with_all
from e2e.kit.plot import Span
from e2e.stack.prometheus import PrometheusServer, Series

RECORDED = json.loads((Path(__file__).parent / "recorded_query_range.json").read_text())
"""What a real Prometheus answered about blockhouse_lag_seconds in a run of `make alerts`: three of its series."""
LAG = Panel("Oldest message not stored", "s", 30, (Query("blockhouse_lag_seconds{}", "{{cluster}}/{{topic}}"),))


class Recorded(PrometheusServer):
    """Answers what was recorded, and keeps what was asked."""

    def __init__(self, tmp_path: Path, answer: object) -> None:
        super().__init__(tmp_path, port=1, jobs={})
        self.asked: list[dict[str, str]] = []
        self._answer = answer

    def _get(self, path: str) -> bytes:
        self.asked.append(dict(urllib.parse.parse_qsl(path.partition("?")[2])))
        return json.dumps(self._answer).encode()


def series(labels: dict[str, str], *values: float) -> Series:
    return Series(labels, tuple(float(at) for at in range(len(values))), values)


def test_an_answer_of_prometheus_is_in_seconds_of_the_run(tmp_path: Path) -> None:
    server = Recorded(tmp_path, RECORDED)
    clock = 60.0

    found = Alerting(server, [], lambda: clock).measured("blockhouse_lag_seconds", 2.0)

    (asked,) = server.asked
    assert (asked["query"], asked["step"]) == ("blockhouse_lag_seconds", "2")
    began = float(asked["start"])
    assert float(asked["end"]) - began == pytest.approx(60, abs=0.01)
    recorded = RECORDED["data"]["result"]
    assert [each.labels for each in found] == [each["metric"] for each in recorded]
    for each, answer in zip(found, recorded, strict=True):
        assert each.times == pytest.approx([at - began for at, _ in answer["values"]], abs=0.01)
        assert each.values == pytest.approx([float(value) for _, value in answer["values"]], nan_ok=True)


def test_a_line_has_the_legend_of_its_panel_and_leaves_out_what_is_no_number() -> None:
    def ask(expr: str, step: float) -> Sequence[Series]:
        return [series({"cluster": "b", "topic": "t"}, 1.0, math.nan, 3.0), series({"cluster": "a"}, math.nan)]

    (line,) = lines(LAG, ask, 1.0)

    assert (line.legend, line.points) == ("b/t", ((0, 1), (2, 3)))


def test_lines_are_in_the_order_of_their_names() -> None:
    answers = [series({"cluster": each, "topic": "t"}, 1.0) for each in "bca"]

    assert [line.legend for line in lines(LAG, lambda expr, step: answers, 1.0)] == ["a/t", "b/t", "c/t"]


def test_a_query_asks_for_everything_and_for_a_rate_over_a_run_s_interval() -> None:
    expr = 'rate(x{namespace=~"$namespace",topic=~"$topic"}[$__rate_interval])'

    assert with_all(expr, "20s") == 'rate(x{namespace=~".*",topic=~".*"}[20s])'


@pytest.mark.parametrize(("uid", "title"), [(uid, title) for uid, titles in SHOWN.items() for title in titles])
def test_every_picture_is_of_a_panel_that_is_shipped(uid: str, title: str) -> None:
    board = json.loads((FOLDER / f"{uid}.json").read_text())

    found = panel(board, title)

    assert found.queries
    assert value_in(found.unit, 1.5)


def test_a_limit_is_that_of_the_panel() -> None:
    board = json.loads((FOLDER / "blockhouse-shard.json").read_text())

    assert panel(board, "Oldest message not stored").limit == 30
    assert panel(board, "Messages not stored").limit is None
    with pytest.raises(ValueError, match="blockhouse-shard has 0 panels of lines over time called Owners"):
        panel(board, "Owners")


def test_all_of_them_are_drawn_with_the_faults_of_the_run() -> None:
    asked: list[tuple[str, float]] = []

    def ask(expr: str, step: float) -> Sequence[Series]:
        asked.append((expr, step))
        return [series({"alertname": "BlockhouseLagGrows", "table": "default.orders"}, 1.0, 2.0)]

    made = dict(panels_drawn(ask, 320.0, [Span("freeze clickhouse-r2, 240.0 s", 30, 270)]))

    assert set(made) == {picture(uid, title) for uid, titles in SHOWN.items() for title in titles}
    assert {step for _, step in asked} == {3.0}
    assert [expr for expr, _ in asked if re.search(r"\$", expr)] == []
    for svg in made.values():
        texts = [each.text for each in ElementTree.fromstring(svg).iter() if each.tag.endswith("}text")]
        assert "freeze clickhouse-r2, 240.0 s" in texts
        assert "no data" not in texts
    assert ">BlockhouseLagGrows<" in made["fleet-alerts-that-fire.svg"]
    assert ">default.orders<" in made["pipeline-rows-ten-largest-tables.svg"]


def test_a_picture_is_named_after_board_and_panel() -> None:
    assert picture("blockhouse-pipeline", "Rows, ten largest tables") == "pipeline-rows-ten-largest-tables.svg"


@pytest.mark.parametrize(
    ("unit", "value", "text"), [("s", 30, "30 s"), ("cps", 2500, "2,500/s"), ("cps", 0.5, "0.5/s"), ("short", 8, "8")]
)
def test_a_value_is_shown_with_its_unit(unit: str, value: float, text: str) -> None:
    assert value_in(unit, value) == text
