"""Sizing: what the formula gives, and that a replica is sized for the time another one is down."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockhouse.load.model import Rate, RateSource
from blockhouse.load.sizing import PLANNED, Work, memory_planned, sizing
from blockhouse.placement.model import TopicPartition


def rates(*messages: float | None, topic: str = "t") -> dict[TopicPartition, Rate]:
    return {TopicPartition(topic, n): Rate(0, rate, RateSource.PARTITION, 0) for n, rate in enumerate(messages)}


def test_the_formula_by_example() -> None:
    """Eight streams of 100,000 rows/s at 2 CPU s a million: 1.6 cores busy, 2.3 planned; two of three share."""
    (found,) = sizing(rates(*[10_000.0] * 8), 3, Work(rows_per_message=10))
    assert (found.streams, found.messages, found.cores) == (8, 80_000, pytest.approx(1.6))
    assert (found.cores_per_replica, found.hot, found.unknown) == (2, (), 0)
    assert sizing(rates(*[10_000.0] * 8), 2, Work(rows_per_message=10))[0].cores_per_replica == 3


def test_memory_is_what_an_aggregator_that_drains_was_measured_to_take() -> None:
    """Two streams of one table: at most 1,300 MiB (docs/bench.md), whether they share a core or not."""
    (found,) = sizing(rates(10.0, 10.0), 1, Work())
    assert found.cores_per_replica == 1
    assert 1300 <= found.memory_per_replica / (1 << 20) <= 1350


@given(st.integers(1, 200), st.integers(1, 1000))
def test_memory_grows_with_streams_and_tables_and_a_round_bounds_it(owned: int, tables: int) -> None:
    memory = memory_planned(owned, tables)
    assert memory_planned(1, 1) <= memory <= memory_planned(owned + 1, tables)
    assert memory <= memory_planned(owned, tables + 1)
    assert memory_planned(owned, 1000) == memory_planned(owned, 10)


def test_a_stream_that_is_too_much_for_a_core_is_named() -> None:
    (found,) = sizing(rates(400_000.0, 10.0), 2, Work())
    assert found.hot == (TopicPartition("t", 0),)


def test_streams_without_a_rate_are_counted_and_not_guessed() -> None:
    (found,) = sizing(rates(None, 10.0), 2, Work())
    assert (found.unknown, found.messages) == (1, 10)


@given(st.lists(st.floats(0, 1e6), min_size=1, max_size=30), st.integers(1, 6))
def test_the_replicas_that_remain_carry_everything_unless_streams_are_too_few(
    messages: list[float], replicas: int
) -> None:
    work = Work()
    (found,) = sizing(rates(*messages), replicas, work)
    remaining = max(replicas - 1, 1)
    enough = found.cores_per_replica * remaining * PLANNED >= found.cores * (1 - 1e-6)
    assert enough or found.cores_per_replica * remaining >= len(messages)
    assert found.cores_per_replica >= 1
