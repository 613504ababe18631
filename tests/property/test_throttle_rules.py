"""The rules of the throttler, whatever happens in whatever order, its effects cut at every index.

Moves start (only after their throttle is whole), replicas get in sync, brokers die and return, topics are deleted,
other tools write their own throttles, figures are missing or absurd, and the throttler dies between two effects.
"""

from __future__ import annotations

import math
from dataclasses import replace
from random import Random

from hypothesis import given, settings
from hypothesis import strategies as st

from blockhouse.placement.model import TopicPartition
from blockhouse.throttle.model import (
    Capacity,
    ClearList,
    ClearRate,
    Event,
    Known,
    Load,
    Override,
    Overrides,
    Remember,
    Role,
    SetList,
    SetRate,
    Settings,
)
from blockhouse.throttle.rates import LARGEST_RISE, Inputs, Why, approach, decide, usable
from tests.unit.throttle.throttle_world import World, move

BROKERS = (1, 2, 3, 4)
KEYS = [TopicPartition(topic, number) for topic in ("t", "u") for number in range(2)]
MB = 1_000_000
ABSURD = (0.0, math.nan, math.inf, -1.0, 20_000e6)


def settings_of(chance: Random) -> Settings:
    return Settings(
        capacity=Capacity(chance.choice([None, 200e6]), {4: 100e6} if chance.random() < 0.5 else {}),
        max_rate=chance.choice([None, None, 40e6]),
        failure_threshold=chance.choice([0, 1, 2]),
    )


def load_of(chance: Random) -> Load:
    def figure() -> float:
        return chance.choice(ABSURD) if chance.random() < 0.15 else chance.uniform(0, 150e6)

    moved = [None if chance.random() < 0.4 else chance.uniform(0, 40e6) for _ in range(2)]
    return Load(figure(), figure(), *moved, age=chance.choice([0, 30, 500]), estimated=chance.random() < 0.3)


def happens(world: World, chance: Random) -> None:
    """Something that the throttler has no part in."""
    what = chance.randrange(9)
    key = chance.choice(KEYS)
    if what == 0 and key in world.moves:
        arriving = sorted(world.moves[key].arriving)
        if arriving:
            world.in_sync(key, chance.choice(arriving))
    elif what == 1 and key in world.moves:
        del world.moves[key]
    elif what == 2:
        world.live ^= {chance.choice(BROKERS)}
    elif what == 3 and chance.random() < 0.3:
        world.topics.discard(key.topic)
        world.moves = {k: m for k, m in world.moves.items() if k.topic != key.topic}
        for role in Role:
            world.lists.pop((key.topic, role), None)
            world.foreign_lists.pop((key.topic, role), None)
    elif what == 4 and key.topic in world.topics:
        entry = f"{chance.randrange(9)}:{chance.choice(BROKERS)}" if chance.random() < 0.8 else "*"
        world.someone_adds((key.topic, chance.choice(list(Role))), entry)
    elif what == 5 and chance.random() < 0.4:
        place = (chance.choice(sorted(world.live) or [1]), chance.choice(list(Role)))
        world.someone_sets_rate(place, 7_000_001 + 2 * chance.randrange(1000))
    elif what == 6:
        world.loads = {id: load_of(chance) for id in BROKERS if chance.random() < 0.8}
    elif what == 7:
        world.write_rates = {k: chance.uniform(0, 60e6) for k in KEYS}
    elif what == 8:
        world.overrides = Overrides(
            Override(15 * MB, auto_remove=chance.random() < 0.5) if chance.random() < 0.3 else None,
            {chance.choice(BROKERS): Override(5 * MB)} if chance.random() < 0.3 else {},
        )
    if key in world.moves and chance.random() < 0.1:  # another leader in the middle of a move
        world.moves[key] = replace(world.moves[key], leader=chance.choice([None, *sorted(world.moves[key].holders)]))


def begin_move(world: World, chance: Random, cut: int | None) -> None:
    """As `apply --throttle` does: throttle first, and start only what is throttled whole."""
    key = chance.choice(KEYS)
    if key in world.moves or key.topic not in world.topics:
        return
    replicas = tuple(chance.sample(BROKERS, 3))
    new = {key: move(replicas, replicas[chance.choice([1, 2]) :], leader=replicas[0])}
    outcome = world.decide(new, adjust=False)
    if world.carry_out(outcome, cut):
        world.moves |= new


def others_are_untouched(world: World) -> None:
    for place, rate in world.foreign_rates.items():
        assert world.rates.get(place) == rate, f"T7: a foreign rate of {place} was changed"
    for listed, entries in world.foreign_lists.items():
        assert entries <= world.lists.get(listed, frozenset()), f"T7: foreign entries of {listed} were changed"


@given(st.integers(0, 10**9))
@settings(max_examples=400, deadline=None)
def test_no_order_of_misfortunes_leaves_a_move_unthrottled_or_a_setting_of_others_changed(seed: int) -> None:
    chance = Random(seed)
    world = World(settings_of(chance))
    for _ in range(25):
        happens(world, chance)
        others_are_untouched(world)
        if chance.random() < 0.4:
            begin_move(world, chance, chance.choice([None, None, chance.randrange(12)]))
        throttled = world.throttled()
        outcome = world.decide()
        cut = chance.choice([None, None, chance.randrange(len(outcome.effects) + 1)])
        for effect in outcome.effects if cut is None else outcome.effects[:cut]:
            world.apply(effect)
            others_are_untouched(world)
            still = {(key, broker) for key, broker in world.arriving() if (key, broker) in throttled}
            assert still <= world.throttled(), "T1: an effect took a throttle away from what still copies"
        if cut is None or cut == len(outcome.effects):
            world.known = outcome.known
            assert set(world.arriving()) == world.throttled(), "T1: after a whole step something copies unthrottled"
        else:
            world.known = Known(ownership=world.stored)  # T10: it died; this is all that is left
    finish(world)


def finish(world: World) -> None:
    """Everything ends and every broker returns: nothing of ours may be left, everything of others must be."""
    world.moves.clear()
    world.live = set(BROKERS)
    for _ in range(2):  # removed, then seen to be gone
        world.settle()
        assert world.stored == world.known.ownership, "what is remembered is what is known"
    assert world.rates == {p: r for p, r in world.foreign_rates.items() if p in world.rates}, "a rate of ours is left"
    for place, entries in world.lists.items():
        assert entries == world.foreign_lists.get(place, frozenset()), f"entries of ours are left in {place}"
    assert not world.stored, "T9: nothing is ours, so nothing is remembered"
    assert not [
        e for e in world.decide().effects if isinstance(e, Remember | SetRate | ClearRate | SetList | ClearList)
    ]


@given(st.integers(0, 10**9))
@settings(max_examples=300, deadline=None)
def test_a_broker_that_answers_what_was_before_makes_nothing_be_left_or_taken_for_foreign(seed: int) -> None:
    """Each look shows the settings of now or those before the last change; then the brokers have caught up."""
    chance = Random(seed)
    world = World(Settings(capacity=Capacity(200e6)), live={1, 2, 3, 4})
    before = replace(world, rates={}, lists={})
    for _ in range(12):
        world.loads = {id: load_of(chance) for id in BROKERS}
        if chance.random() < 0.5:  # its look is a fresh one, so nothing older is shown after it
            before = replace(world, rates=dict(world.rates), lists=dict(world.lists))
            begin_move(world, chance, None)
        for key in list(world.moves):
            if chance.random() < 0.3:
                del world.moves[key]
        shown = world.stale(before) if chance.random() < 0.5 else world
        before = replace(world, rates=dict(world.rates), lists=dict(world.lists))
        outcome = shown.decide()
        assert not [
            event for event in outcome.effects if isinstance(event, Event) and event.reason == "ForeignThrottle"
        ]
        world.carry_out(outcome)
    finish(world)


@given(st.integers(0, 10**9))
@settings(max_examples=200, deadline=None)
def test_the_value_is_remembered_before_it_is_written_and_both_count_as_ours(seed: int) -> None:
    chance = Random(seed)
    world = World(replace(settings_of(chance), max_rate=None))
    world.moves = {KEYS[0]: move((1, 2, 3), [3])}
    for _ in range(6):
        world.loads = {id: load_of(chance) for id in BROKERS}
        world.write_rates = {KEYS[0]: chance.uniform(0, 60e6)}
        outcome = world.decide()
        remembered = world.stored
        for effect in outcome.effects:
            if isinstance(effect, Remember):
                remembered = effect.ownership
            if isinstance(effect, SetRate):
                assert effect.rate in remembered.rates[effect.broker, effect.role]
                old = world.rates.get((effect.broker, effect.role))
                assert old is None or old in remembered.rates[effect.broker, effect.role], "the old one is ours too"
            if isinstance(effect, SetList):
                assert effect.entries <= remembered.lists[effect.topic, effect.role]
            world.apply(effect)
        world.known = outcome.known


@given(
    now=st.one_of(st.none(), st.integers(1 * MB, 400 * MB)),
    total=st.floats(0, 500e6),
    moved=st.one_of(st.none(), st.floats(0, 100e6)),
    floor=st.floats(0, 300e6),
    capacity=st.one_of(st.none(), st.floats(50e6, 400e6)),
    failures=st.integers(0, 3),
    missing=st.booleans(),
)
@settings(max_examples=600, deadline=None)
def test_a_rate_protects_clients_rises_slowly_falls_at_once_and_never_goes_below_the_minimum(
    now: int | None,
    total: float,
    moved: float | None,
    floor: float,
    capacity: float | None,
    failures: int,
    missing: bool,
) -> None:
    given_ = Settings()
    load = None if missing else usable(Load(total, total, moved, moved), Role.LEADER, capacity, given_)
    found = decide(Inputs(Role.LEADER, capacity, load, floor, now, failures), given_)
    assert found.rate >= given_.min_rate
    if now is not None:
        assert found.rate <= max(LARGEST_RISE * now, given_.min_rate) + 1, "T4: it rose too fast"
    if capacity is not None and load is not None and found.other is not None:
        free = max(capacity - found.other, 0)
        kept = found.why in (Why.UNCHANGED, Why.KEPT)
        assert found.rate <= max(free, given_.min_rate) * (1.04 if kept else 1) + 1, "T2: clients have no room left"
        assert (found.stall is not None) == (floor > free), "T3: stalled exactly when the floor is above what is free"
        if found.stall is not None:
            assert found.stall.needed == floor
            assert found.stall.possible == free
        elif now is not None and floor <= free and not kept:
            assert found.rate >= min(floor, LARGEST_RISE * now) - 1, "T3: below what the move needs to end"
    if capacity is None or (load is None and (now is None or failures > given_.failure_threshold)):
        least = max(given_.min_rate, floor if capacity is None else min(floor, capacity))
        upper = least if now is None else max(min(least, 2 * now), given_.min_rate)
        assert found.rate <= max(upper, now or 0) + 1, "T5: more than the minimum without figures"


@given(st.floats(1e6, 1e9), st.floats(1e6, 1e9))
def test_small_changes_are_not_written(now: float, target: float) -> None:
    next_ = approach(now, target, 0.1)
    if target < now * 0.97:
        assert next_ == target
    elif target < now * 1.1 - 1:
        assert next_ == now or abs(target - now) / now >= 0.03
    assert approach(now, target, 0.1, adjust=False) <= now, "between intervals nothing rises"


def test_an_idle_cluster_gets_no_effects() -> None:
    world = World(Settings())
    world.loads = {1: Load(1e6, 1e6)}
    world.someone_sets_rate((1, Role.LEADER), 7_000_001)
    world.someone_adds(("t", Role.LEADER), "*")
    assert world.decide().effects == ()


def test_one_brokers_missing_figures_touch_no_other() -> None:
    world = World(Settings(capacity=Capacity(200e6)))
    world.moves = {KEYS[0]: move((1, 2, 3), [3])}
    world.loads = {id: Load(10e6, 10e6, 0.0, 0.0) for id in BROKERS}
    for _ in range(5):
        world.settle()
    before = dict(world.rates)
    del world.loads[3]
    world.settle()
    assert world.rates == before, "one failure is within the threshold"
    world.settle()
    assert world.rates == {**before, (3, Role.FOLLOWER): 10 * MB}
