"""Pictures of panels of the dashboards that the chart ships, drawn from what the Prometheus of a run has seen.

The panels are read from the shipped files, and their queries are asked as Grafana asks them, with "All" for every
choice: what is drawn is what a person sees there.
"""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from e2e.kit.plot import Chart, Line, Span, drawn
from e2e.stack.prometheus import Series

FOLDER = Path(__file__).parents[2] / "charts" / "blockhouse" / "files" / "dashboards"
SHOWN: Mapping[str, Sequence[str]] = {
    "blockhouse-fleet": ("Alerts that fire",),
    "blockhouse-pipeline": (
        "Rows, ten largest tables",
        "Inserts to be tried again",
        "Blocks rebuilt and sent again",
        "Commits",
        "Streams owned",
    ),
    "blockhouse-shard": ("Messages not stored", "Oldest message not stored"),
}
"""The panels that answer the first questions of a night, by the board's uid."""
RATE_INTERVAL = "20s"
"""Enough for a rate in every sample of a run that is scraped each second."""
_POINTS = 150
"""Samples of a line, at most."""

Ask = Callable[[str, float], Sequence[Series]]
"""An expression and the seconds between two samples -> its series, with times in seconds of the run."""


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL, and the legend of its series in Grafana's `{{label}}`."""

    expr: str
    legend: str

    def named(self, labels: Mapping[str, str]) -> str:
        """The legend of one series; a label that it lacks is nothing."""
        return re.sub(r"\{\{(\w+)\}\}", lambda found: labels.get(found[1], ""), self.legend).strip()


@dataclass(frozen=True, slots=True)
class Panel:
    """One that shows lines over time. `unit` is Grafana's name of it."""

    title: str
    unit: str
    limit: float | None
    queries: tuple[Query, ...]


def picture(board: str, title: str) -> str:
    """Name of the file: blockhouse-shard, Messages not stored -> shard-messages-not-stored.svg."""
    words = re.findall(r"[a-z0-9]+", title.lower())
    return "-".join([board.removeprefix("blockhouse-"), *words]) + ".svg"


def with_all(expr: str, rate_interval: str) -> str:
    """A panel's expression as Grafana sends it with "All" for every choice."""
    return re.sub(r"\$(?!__)\w+", ".*", expr.replace("$__rate_interval", rate_interval))


def panel(board: Mapping[str, Any], title: str) -> Panel:
    """The panel of that title. Raises ValueError when the board has none that shows lines over time."""
    found = [each for each in board["panels"] if each["title"] == title and each["type"] == "timeseries"]
    if len(found) != 1:
        raise ValueError(f"{board['uid']} has {len(found)} panels of lines over time called {title}")
    defaults = found[0]["fieldConfig"]["defaults"]
    limits = [step["value"] for step in defaults.get("thresholds", {}).get("steps", []) if step["value"] is not None]
    queries = tuple(Query(each["expr"], each["legendFormat"]) for each in found[0]["targets"])
    return Panel(title, defaults["unit"], limits[0] if limits else None, queries)


def panels_drawn(ask: Ask, seconds: float, faults: Sequence[Span]) -> Iterator[tuple[str, str]]:
    """Name and SVG of every panel of SHOWN, over a run of so many seconds, with its faults below the time axis."""
    step = float(max(1, math.ceil(seconds / _POINTS)))
    for uid, titles in SHOWN.items():
        board = json.loads((FOLDER / f"{uid}.json").read_text())
        for title in titles:
            shown = panel(board, title)
            show = partial(value_in, shown.unit)
            chart = Chart(title, lines(shown, ask, step), seconds, step, show, shown.limit, tuple(faults))
            yield picture(uid, title), drawn(chart)


def lines(shown: Panel, ask: Ask, step: float) -> tuple[Line, ...]:
    """A line for each series, by name. Values that are no numbers, such as of 0 / 0, are gaps."""
    found = [
        Line(
            query.named(series.labels),
            tuple((at, value) for at, value in zip(series.times, series.values, strict=True) if math.isfinite(value)),
        )
        for query in shown.queries
        for series in ask(with_all(query.expr, RATE_INTERVAL), step)
    ]
    return tuple(sorted((line for line in found if line.points), key=lambda line: line.legend))


def value_in(unit: str, value: float) -> str:
    """A value as Grafana shows it, for the units that these panels have. Raises KeyError for another one."""
    suffix = {"short": "", "cps": "/s", "s": " s"}[unit]
    text = f"{value:,.0f}" if value == int(value) else f"{value:g}"
    return text + suffix
