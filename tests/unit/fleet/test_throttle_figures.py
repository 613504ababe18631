"""Metrics of throttles: what is known has a figure, what is not has none."""

from __future__ import annotations

import pytest

from blockhouse.fleet.throttle_context import Tally
from blockhouse.fleet.throttle_figures import ThrottleFigures, throttle_figures
from blockhouse.throttle.model import Override, Overrides, Role
from blockhouse.throttle.report import Row

LABELS = ("namespace", "reassignment")


def row(role: Role, **changes: object) -> Row:
    base: dict[str, object] = {
        "broker": 3, "role": role, "alive": True, "capacity": 100e6, "other": None, "moved": 4e6, "rate": 10_000_000,
        "in_force": 10_000_000, "floor": 12e6, "why": "", "remaining": 500.0, "eta": 60.0, "stalled": False,
    }  # fmt: skip
    return Row(**{**base, **changes})  # type: ignore[arg-type]


def test_every_known_figure_of_a_broker_is_a_metric() -> None:
    rows = {
        ("data", "move"): ThrottleFigures((row(Role.LEADER), row(Role.FOLLOWER, stalled=True, eta=float("inf")))),
        ("data", "resting"): ThrottleFigures(),
    }
    found = {
        (sample.name, sample.labels.get("role", "")): sample.value
        for metric in throttle_figures(rows, LABELS)
        for sample in metric.samples
    }
    assert found["blockhouse_throttle_rate_bytes", "follower"] == 10_000_000
    assert found["blockhouse_throttle_floor_bytes", "leader"] == 12e6
    assert ("blockhouse_throttle_other_bytes", "leader") not in found
    assert found["blockhouse_reassignment_remaining_bytes", ""] == 500.0, "what the source sends is the same bytes"
    assert found["blockhouse_reassignment_eta_seconds", ""] == float("inf")
    assert found["blockhouse_throttle_stalled", ""] == 1


def test_failures_writes_and_fixed_rates_are_metrics() -> None:
    tally = Tally()
    with tally.writing("rate"):
        pass
    with pytest.raises(ZeroDivisionError), tally.writing("list"):
        raise ZeroDivisionError
    tally.failures[3, "stale"] += 2
    overrides = Overrides(Override(5_000_000), {3: Override(1_000_000)})
    found = {
        (sample.name, *(sample.labels[name] for name in sample.labels if name not in LABELS)): (sample.value)
        for metric in throttle_figures({("data", "move"): ThrottleFigures((), tally, overrides)}, LABELS)
        for sample in metric.samples
    }
    assert found == {
        ("blockhouse_throttle_failures_total", "3", "stale"): 2,
        ("blockhouse_throttle_writes_total", "rate", "ok"): 1,
        ("blockhouse_throttle_writes_total", "list", "failed"): 1,
        ("blockhouse_throttle_override", "everywhere"): 5_000_000,
        ("blockhouse_throttle_override", "3"): 1_000_000,
    }


def test_without_reassignments_there_are_no_samples() -> None:
    assert [sample for metric in throttle_figures({}, LABELS) for sample in metric.samples] == []
