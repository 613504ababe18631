"""Throttles and progress of moves as metrics, read when they are scraped."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from blockhouse.fleet.throttle_context import Tally
from blockhouse.throttle.model import Overrides
from blockhouse.throttle.report import Row, whole_eta

Subject = TypeVar("Subject", bound=tuple[str, ...])
"""What is throttled: a value for each label that names it."""
_RATES = {
    "rate": "Rate in force or decided, bytes a second.",
    "floor": "Least rate at which the moves of the broker end.",
    "other": "What clients of the broker use.",
    "moved": "What was copied lately.",
    "capacity": "What the broker's network carries.",
}


@dataclass(frozen=True)
class ThrottleFigures:
    """What is known of one throttle."""

    rows: tuple[Row, ...] = ()
    tally: Tally = field(default_factory=Tally)
    overrides: Overrides = field(default_factory=Overrides)


def throttle_figures(figures: Mapping[Subject, ThrottleFigures], labels: Sequence[str]) -> Iterator[Metric]:
    """A gauge for each figure of each broker and role that takes part; nothing for what is unknown. `labels` are the
    names of what a subject has."""
    yield from _rates({subject: found.rows for subject, found in figures.items() if found.rows}, labels)
    yield from _counts(figures, labels)


def _counts(figures: Mapping[Subject, ThrottleFigures], labels: Sequence[str]) -> Iterator[Metric]:
    failures = CounterMetricFamily(
        "blockhouse_throttle_failures",
        "Intervals in which a broker's load was missing, stale or absurd.",
        labels=(*labels, "broker", "reason"),
    )
    writes = CounterMetricFamily(
        "blockhouse_throttle_writes", "Rates and lists written to Kafka.", labels=(*labels, "what", "result")
    )
    override = GaugeMetricFamily(
        "blockhouse_throttle_override", "Fixed rates, bytes a second.", labels=(*labels, "scope")
    )
    for subject, found in figures.items():
        for (broker, reason), count in found.tally.failures.items():
            failures.add_metric([*subject, str(broker), reason], count)
        for (what, result), count in found.tally.writes.items():
            writes.add_metric([*subject, what, result], count)
        given = {str(broker): fixed for broker, fixed in found.overrides.brokers.items()}
        if found.overrides.everywhere is not None:
            given["everywhere"] = found.overrides.everywhere
        for scope, fixed in given.items():
            override.add_metric([*subject, scope], fixed.rate)
    yield from (failures, writes, override)


def _rates(rows: Mapping[Subject, tuple[Row, ...]], labels: Sequence[str]) -> Iterator[Metric]:
    for figure, meaning in _RATES.items():
        metric = GaugeMetricFamily(f"blockhouse_throttle_{figure}_bytes", meaning, labels=(*labels, "broker", "role"))
        for subject, found in rows.items():
            for row in found:
                value = getattr(row, figure)
                if value is not None:
                    metric.add_metric([*subject, str(row.broker), row.role.value], float(value))
        yield metric
    remaining = GaugeMetricFamily("blockhouse_reassignment_remaining_bytes", "Bytes left to copy.", labels=labels)
    eta = GaugeMetricFamily("blockhouse_reassignment_eta_seconds", "Until it is done; +Inf: never.", labels=labels)
    stalled = GaugeMetricFamily("blockhouse_throttle_stalled", "Brokers at which a move does not end.", labels=labels)
    for subject, found in rows.items():
        left = [row.remaining for row in found if row.role.value == "follower" and row.remaining is not None]
        remaining.add_metric(subject, math.fsum(left))
        stalled.add_metric(subject, len({row.broker for row in found if row.stalled}))
        until = whole_eta(found)
        if until is not None:
            eta.add_metric(subject, until)
    yield from (remaining, eta, stalled)
