"""Boards, rows and panels as plain values, and their JSON as Grafana reads it, made by Grafana's own SDK."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TypeAlias

from grafana_foundation_sdk.builders import dashboard, prometheus, stat, table, timeseries
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models import dashboard as models
from grafana_foundation_sdk.models.prometheus import PromQueryFormat

_SOURCE = models.DataSourceRef(type_val="prometheus", uid="${datasource}")
_EVERYTHING = ".*"
"""What a variable's "All" stands for: as a pattern it matches series without the label, too."""
_COLUMNS, _HEIGHT, _NUMBER_HEIGHT = 24, 8, 4
"""Of Grafana's grid."""


class Unit(StrEnum):
    """Grafana's names of the units used here."""

    COUNT = "short"
    PER_SECOND = "cps"
    SECONDS = "s"
    BYTES = "bytes"
    BYTES_PER_SECOND = "Bps"
    SHARE = "percentunit"
    TIME = "dateTimeFromNow"


@dataclass(frozen=True, slots=True)
class Query:
    """PromQL, and the legend of its series in Grafana's `{{label}}`."""

    expr: str
    legend: str = ""


@dataclass(frozen=True, slots=True)
class Panel:
    """What one figure is called, what it means and what to do when it is bad."""

    title: str
    text: str
    queries: tuple[Query, ...]
    unit: Unit = Unit.COUNT
    bad_above: float | None = None
    """Red from this value on, in the panel's unit."""


class Series(Panel):
    """Lines over time."""


class Number(Panel):
    """The last value, large; the first query's alone."""


class Listing(Panel):
    """A row a series of the first query, with its labels as columns and the value last."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A choice at the top of a board: the values of `label` in the series of `metric`."""

    name: str
    label: str
    metric: str


@dataclass(frozen=True, slots=True)
class Row:
    title: str
    panels: tuple[Panel, ...]


@dataclass(frozen=True, slots=True)
class Board:
    uid: str
    title: str
    text: str
    variables: tuple[Variable, ...]
    rows: tuple[Row, ...] = field(default_factory=tuple)

    def panels(self) -> Iterator[Panel]:
        """All of them, row by row."""
        for row in self.rows:
            yield from row.panels


def render(board: Board) -> str:
    """The board's JSON model, with a newline at its end; the same text for the same board."""
    made = (
        dashboard.Dashboard(board.title)
        .uid(board.uid)
        .description(board.text)
        .tags(["blockhouse"])
        .readonly()
        .refresh("30s")
        .time("now-1h", "now")
        .tooltip(models.DashboardCursorSync.CROSSHAIR)
        .link(dashboard.DashboardLink("Blockhouse").type(models.DashboardLinkType.DASHBOARDS).tags(["blockhouse"]))
        .with_variable(dashboard.DatasourceVariable("datasource").label("Data source").type("prometheus"))
    )
    for variable in board.variables:
        made = made.with_variable(_variable(variable))
    for row in board.rows:
        made = made.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            made = made.with_panel(_panel(panel, _COLUMNS // min(len(row.panels), 4)))
    return json.dumps(made.build(), cls=JSONEncoder, indent=1, sort_keys=True) + "\n"


def _variable(variable: Variable) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(variable.name)
        .label(variable.name.capitalize())
        .datasource(_SOURCE)
        .query(f"label_values({variable.metric}, {variable.label})")
        .refresh(models.VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(models.VariableSort.ALPHABETICAL_ASC)
        .include_all(True)
        .all_value(_EVERYTHING)
        .multi(True)
    )


_Builder: TypeAlias = timeseries.Panel | stat.Panel | table.Panel


def _panel(panel: Panel, width: int) -> _Builder:
    made: _Builder
    match panel:
        case Number():
            made = stat.Panel().height(_NUMBER_HEIGHT)
        case Listing():
            made = table.Panel().height(_HEIGHT)
        case _:  # every other one is drawn over time
            made = timeseries.Panel().height(_HEIGHT).fill_opacity(8)
    made = made.title(panel.title).description(panel.text).datasource(_SOURCE).span(width).unit(panel.unit)
    for number, query in enumerate(panel.queries):
        made = made.with_target(_target(panel, query, chr(ord("A") + number)))
    if isinstance(panel, Listing):
        made = made.with_transformation(_without_time())
    if panel.bad_above is None:
        return made
    steps = [models.Threshold(value=None, color="green"), models.Threshold(value=panel.bad_above, color="red")]
    return made.thresholds(dashboard.ThresholdsConfig().mode(models.ThresholdsMode.ABSOLUTE).steps(steps))


def _target(panel: Panel, query: Query, ref: str) -> prometheus.Dataquery:
    made = prometheus.Dataquery().expr(query.expr).ref_id(ref).legend_format(query.legend)
    if isinstance(panel, Series):
        return made.range()
    return made.instant().format(PromQueryFormat.TABLE if isinstance(panel, Listing) else PromQueryFormat.TIME_SERIES)


def _without_time() -> models.DataTransformerConfig:
    return models.DataTransformerConfig(id_val="organize", options={"excludeByName": {"Time": True}})
