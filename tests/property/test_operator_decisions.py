"""A shard found in any state comes to rest, and on the way never loses a replica that another one depends on.

A failure prints its seed; `World.any(Random(seed))` is the same shard again.
"""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blockhouse_operator.decide import removal, rollout
from blockhouse_operator.decide.seen import State
from tests.unit.operator.shard_world import World

SHARDS = 1_500


@settings(max_examples=SHARDS, deadline=None, database=None)
@given(seed=st.integers(0, 2**40))
def test_a_shard_found_in_any_state_comes_to_rest_as_the_spec_wants_it(seed: int) -> None:
    world = World.any(Random(seed))
    world.settle()

    seen = world.seen()
    assert not seen.surplus, f"SEED={seed}"
    assert world.begun is None, f"SEED={seed}"
    assert all(replica.state() is State.CONSUMING for replica in seen.replicas), f"SEED={seed}"
    assert not any(replica.outdated for replica in seen.replicas), f"SEED={seed}"


@settings(max_examples=SHARDS // 3, deadline=None, database=None)
@given(seed=st.integers(0, 2**40))
def test_at_rest_nothing_is_planned_by_any_operator_however_often(seed: int) -> None:
    world = World.any(Random(seed))
    world.settle()
    taken = world.steps
    for _ in range(3):
        assert world.operate().settled, f"SEED={seed}"
    assert world.steps == taken, f"SEED={seed}"


@settings(max_examples=SHARDS, deadline=None, database=None)
@given(seed=st.integers(0, 2**40))
def test_whatever_happens_meanwhile_no_step_takes_a_replica_that_another_one_depends_on(seed: int) -> None:
    wander(seed)


def wander(seed: int) -> None:
    """The order of things is by chance: pods die, the spec changes, the operator looks rarely. `World` checks steps."""
    chance = Random(seed)
    world = World.any(chance)
    for _ in range(60):
        name = chance.choice(sorted(world.replicas) or ["none"])
        match chance.choice(["operate", "operate", "advance", "advance", "advance", "harm"]):
            case "operate":
                world.operate()
            case "advance":
                world.advance(name)
            case "harm":
                world.harm(name, chance)
    world.settle()


def all_but(checks: tuple[rollout.Check, ...], left_out: rollout.Check) -> tuple[rollout.Check, ...]:
    return tuple(check for check in checks if check is not left_out)


def harmed() -> int:
    """In how many worlds a step took what was needed."""
    found = 0
    for seed in range(200):
        try:
            wander(seed)
        except AssertionError:
            found += 1
    return found


def test_the_world_sees_the_harm_of_restarts_that_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for chain in ("BEFORE_A_STEP", "BEFORE_A_RESTART"):
        monkeypatch.setattr(rollout, chain, all_but(getattr(rollout, chain), rollout.others_well))
    assert harmed() > 20


def test_the_world_sees_the_harm_of_removals_that_do_not_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(removal, "_may_drain", lambda *_: None)
    assert harmed() > 20


def test_the_worlds_are_rich() -> None:
    steps = [world.steps for world in (World.any(Random(seed)) for seed in range(300)) if world.settle() >= 0]
    assert sum(step > 6 for step in steps) > 50, "worlds in which nothing is to be done prove nothing"
