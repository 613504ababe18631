"""Series of metrics: the labels that name a stream, and gauges whose series end with what they are about."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeVar

from prometheus_client import Gauge

from blockhouse.streams import StreamId

LabelsT = TypeVar("LabelsT", bound=tuple[str, ...])
STREAM = ("cluster", "topic", "partition")
"""The labels that name a stream: three, so that a query can sum over a cluster or a topic."""


def labels_of(stream: StreamId) -> tuple[str, str, str]:
    """Their values, in that order."""
    return stream.cluster, stream.topic, str(stream.partition)


def show_only(gauge: Gauge, values: Mapping[LabelsT, float]) -> None:
    """Exactly these series, by label values."""
    shown = {tuple(str(value) for value in labels) for labels in gauge._metrics}  # the client lists them nowhere else
    for labels in shown - set(values):
        gauge.remove(*labels)
    for labels, value in values.items():
        gauge.labels(*labels).set(value)


def end(gauge: Gauge, *labels: str) -> None:
    """The series is over, if there was one."""
    gauge.labels(*labels)
    gauge.remove(*labels)
