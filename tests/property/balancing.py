"""Any assignment with rates, for the properties of balance."""

from __future__ import annotations

from hypothesis import strategies as st

from blockhouse.balance.model import Assignment
from blockhouse.balance.packing import giants, limit
from blockhouse.placement.model import TopicPartition

SLACK = 1 + 1e-6
Weights = dict[TopicPartition, float]


def names(count: int) -> list[str]:
    return [f"task{n}" for n in range(count)]


def keyed(rates: list[float]) -> Weights:
    return {TopicPartition(f"t{n % 3}", n // 3): rate for n, rate in enumerate(rates)}


rates = st.lists(st.floats(1e-3, 1e6) | st.sampled_from([0.0, 1.0, 1.0, 1e9]), min_size=1, max_size=60)
"""Bytes a second: below a thousandth sums of floats no longer distinguish partitions, and nothing depends on it."""
tolerances = st.sampled_from([0.0, 0.1, 0.5])


@st.composite
def assigned(draw: st.DrawFn) -> tuple[Assignment, Weights]:
    """Any assignment, also a very bad one, with rates of all its partitions."""
    weights = keyed(draw(rates))
    count = draw(st.integers(1, 8))
    owners = draw(st.lists(st.integers(0, count - 1), min_size=len(weights), max_size=len(weights)))
    tasks: dict[str, list[TopicPartition]] = {name: [] for name in names(count)}
    for key, owner in zip(weights, owners, strict=True):
        tasks[f"task{owner}"].append(key)
    return Assignment(tasks), weights


def allowed(weights: Weights, tasks: int, tolerance: float) -> float:
    return limit(weights, tasks, tolerance, giants(weights, tasks, tolerance)) * SLACK
