"""How fast a shifted load is rebalanced: the whole decision in simulated time, from samples to an assignment."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from random import Random

import pytest

from blockhouse.balance.model import quality
from blockhouse.balance.packing import repack
from blockhouse.balance.triggers import Look, RebalanceSettings, RebalanceState, decide
from blockhouse.load.figures import Statistic
from blockhouse.load.history import LoadHistory, Window
from blockhouse.load.model import PartitionLoad, Sample
from blockhouse.placement.model import TopicPartition

START = datetime(2026, 1, 1, tzinfo=UTC)
PERIOD = 30
"""Seconds between samples, and between looks."""


def reaction(settings: RebalanceSettings, window: Window, moved_before: float, seed: int) -> float:
    """Seconds from the shift of a load until the tasks are within the tolerance of it; `moved_before` the last move."""
    chance = Random(seed)
    keys = [TopicPartition("t", n) for n in range(400)]
    rates = {key: chance.uniform(50e3, 150e3) for key in keys}
    history = LoadHistory()
    current = repack([f"task{n}" for n in range(8)], rates)
    start = START + timedelta(seconds=chance.randrange(300))  # anywhere in the five minutes of the history's means
    state = RebalanceState(moved_at=start - timedelta(seconds=moved_before))
    busier = {key: rate * (8 if key in set(current["task0"][:10]) else 1) for key, rate in rates.items()}
    for step in range(-20, 200):
        seconds = step * PERIOD
        actual = busier if step > 0 else rates  # the shift is at 0: the next sample shows it
        loads = {key: PartitionLoad(rate, 1.0) for key, rate in actual.items()}
        now = start + timedelta(seconds=seconds)
        history.add(Sample("c", "test", now.timestamp(), PERIOD, loads))
        found = history.rates(keys, window, now.timestamp(), 50e3)
        weights = {key: rate.bytes for key, rate in found.items()}
        # Tasks that get more than 1.5 of the mean are behind from the first sample after the shift on.
        behind = {task for task, load in current.loads(actual).items() if load > 1.5 * quality(current, actual).mean}
        lags = {key: 90.0 for task in behind for key in current[task]}
        decision, state = decide(current, Look(now, weights, list(current), lags), settings, state)
        current = decision.assignment
        if step > 0 and quality(current, busier).ratio <= 1.2:
            return seconds
    raise AssertionError("never rebalanced")


@pytest.mark.parametrize("seed", range(5))
def test_without_a_cool_down_within_a_minute(seed: int) -> None:
    settings = RebalanceSettings(cooldown=0)
    assert reaction(settings, Window(120, Statistic.MAX), 10_000, seed) <= 60


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("moved_before", [0, 300, 10_000])
def test_with_the_defaults_within_the_cool_down(seed: int, moved_before: float) -> None:
    settings = RebalanceSettings()
    expected = max(settings.cooldown - moved_before, 60)
    assert expected - PERIOD <= reaction(settings, Window(120, Statistic.MAX), moved_before, seed) <= expected + PERIOD
