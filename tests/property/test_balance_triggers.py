"""What holds for every rebalance: when it may move partitions, how many, and how even the tasks are then."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta
from random import Random

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from blockhouse.balance.model import Assignment, quality
from blockhouse.balance.packing import repack
from blockhouse.balance.quiet import QuietHours
from blockhouse.balance.sticky import step
from blockhouse.balance.triggers import AIM, Cause, Look, RebalanceSettings, RebalanceState, decide
from tests.property.balancing import SLACK, Weights, assigned, keyed, names

START = datetime(2026, 1, 1, tzinfo=UTC)


@given(st.lists(st.floats(1, 2), min_size=200, max_size=400), st.integers(2, 10), st.integers(0, 2**16))
@settings(max_examples=30)
def test_a_rebalance_leaves_half_the_tolerance_for_drift(found: list[float], count: int, seed: int) -> None:
    """Rates drift by a third from a good assignment on: one look in quiet hours, at most 2 % of the partitions move."""
    weights, chance = keyed(found), Random(seed)
    before = repack(names(count), weights)
    weights = {key: rate * math.exp(chance.gauss(0, 0.3)) for key, rate in weights.items()}
    chosen = RebalanceSettings(quiet_hours=(QuietHours.parse("00:00-12:00"),))
    decision, _ = decide(before, Look(START, weights, list(before)), chosen, RebalanceState())
    assert quality(decision.assignment, weights).ratio <= 1.05 * SLACK
    assert len(decision.moved) <= math.ceil(0.02 * len(weights))


@given(
    st.lists(
        st.tuples(st.floats(1, 600), st.lists(st.floats(0, 200), min_size=12, max_size=12), st.integers(0, 2**16)),
        min_size=1,
        max_size=25,
    )
)
def test_what_moves_for_lag_or_quiet_hours_waits_for_the_cool_down(
    looks: list[tuple[float, list[float], int]],
) -> None:
    """A simulated clock, rates that change wildly, lags at random: never two rebalances within the cool-down."""
    weights = keyed([1.0] * 12)
    current, state, now, moved_at = repack(names(3), weights), RebalanceState(), START, None
    chosen = RebalanceSettings(cooldown=900)
    for seconds, lags, seed in looks:
        now += timedelta(seconds=seconds)
        changed = {key: float(1 + (seed >> n) % 7) for n, key in enumerate(weights)}
        look = Look(now, changed, list(current), dict(zip(weights, lags, strict=True)))
        decision, state = decide(current, look, chosen, state)
        assert decision.assignment.partitions() == weights.keys()
        if decision.moved:
            assert decision.causes == (Cause.LAG,)
            assert moved_at is None or (now - moved_at).total_seconds() >= chosen.cooldown
            moved_at = now
        current = decision.assignment


@given(assigned(), st.floats(0.01, 0.2))
def test_quiet_hours_move_at_most_their_share(given: tuple[Assignment, Weights], share: float) -> None:
    before, weights = given
    chosen = RebalanceSettings(quiet_hours=(QuietHours.parse("00:00-12:00"),), most_moved=share)
    decision, _ = decide(before, Look(START, weights, list(before)), chosen, RebalanceState())
    assert len(decision.moved) <= math.ceil(share * len(weights))
    noon = Look(START + timedelta(hours=12), weights, list(before))
    assert decide(before, noon, chosen, RebalanceState())[0].moved == frozenset()


@given(assigned())
def test_a_request_does_at_once_what_the_tolerance_needs(given: tuple[Assignment, Weights]) -> None:
    before, weights = given
    look = Look(START, weights, list(before), requested=True)
    decision, _ = decide(before, look, RebalanceSettings(), RebalanceState(moved_at=START))
    assert decision.assignment == step(before, weights, AIM * 0.10, 500)
    assume(decision.moved)
    assert Cause.REQUEST in decision.causes
