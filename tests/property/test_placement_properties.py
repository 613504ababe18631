"""What every plan keeps, whatever the fleet looks like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from itertools import product
from statistics import pstdev

from hypothesis import assume, given, settings
from hypothesis import strategies as st

from blockhouse.placement.documents import parse_map, render_map
from blockhouse.placement.leadership import balance_leaders, evacuate_leadership
from blockhouse.placement.model import Broker, PartitionMap, TopicPartition
from blockhouse.placement.phases import chunks, phases
from blockhouse.placement.plan import Plan
from blockhouse.placement.rebalance import RebalanceOptions, plan_rebalance
from blockhouse.placement.rebuild import RebuildOptions, plan_rebuild
from blockhouse.placement.topics import assign_partitions

GIB = 1 << 30
fast = settings(max_examples=60, deadline=None)


@dataclass(frozen=True)
class Fleet:
    """A cluster, a map on some of its brokers (and maybe on one that is gone), and the desired brokers."""

    cluster: Mapping[int, Broker]
    current: PartitionMap
    sizes: Mapping[TopicPartition, float]
    desired: tuple[int, ...]

    def rack(self, id: int) -> str:
        return self.cluster[id].rack if id in self.cluster else ""

    def racks_differ(self, replicas: tuple[int, ...]) -> bool:
        racks = [self.rack(id) for id in replicas if self.rack(id)]
        return len(set(racks)) == len(racks)


@st.composite
def rack_aware_sets(draw: st.DrawFn, brokers: list[Broker], partitions: int, replication: int) -> list[list[int]]:
    racks: dict[str, list[int]] = {}
    for broker in brokers:
        racks.setdefault(broker.rack, []).append(broker.id)
    sets = []
    for _ in range(partitions):
        chosen = draw(st.permutations(sorted(racks)))[:replication]
        sets.append([draw(st.sampled_from(racks[rack])) for rack in chosen])
    return sets


@st.composite
def fleets(draw: st.DrawFn, *, additions_only: bool = False) -> Fleet:
    racks = draw(st.integers(2, 4))
    per_rack = draw(st.integers(1, 3))
    brokers = [
        Broker(id, "abcd"[id % racks], float(draw(st.integers(200, 1000)) * GIB)) for id in range(racks * per_rack)
    ]
    replication = draw(st.integers(1, racks))
    sets: dict[TopicPartition, list[int]] = {}
    for topic in draw(st.sampled_from([["t"], ["t", "u"]])):
        for number, replicas in enumerate(draw(rack_aware_sets(brokers, draw(st.integers(1, 6)), replication))):
            sets[TopicPartition(topic, number)] = replicas
    current = PartitionMap(sets)
    sizes = {key: float(draw(st.integers(1, 60)) * GIB) for key in current}
    keep = current.brokers() if additions_only else frozenset(draw(st.sets(st.sampled_from(brokers), min_size=1)))
    desired = [b.id for b in brokers if b.id in keep or b in keep or draw(st.booleans())]
    return Fleet({b.id: b for b in brokers}, current, sizes, tuple(desired))


rebuilds = st.builds(
    RebuildOptions,
    placement=st.sampled_from(["count", "storage"]),
    optimize=st.sampled_from(["distribution", "storage"]),
    force=st.booleans(),
    optimize_leadership=st.booleans(),
    min_rack_ids=st.integers(0, 2),
    replication=st.integers(0, 3),
)


def rebuilt(fleet: Fleet, options: RebuildOptions) -> Plan:
    plan = plan_rebuild(fleet.current, fleet.cluster, fleet.desired, options, fleet.sizes)
    assume(not plan.errors)
    return plan


def reordered(mapping: Mapping[TopicPartition, tuple[int, ...]]) -> PartitionMap:
    return PartitionMap(dict(reversed(list(mapping.items()))))


@fast
@given(fleets(), rebuilds)
def test_the_same_input_in_another_order_gives_the_same_plan(fleet: Fleet, options: RebuildOptions) -> None:
    plan = plan_rebuild(fleet.current, fleet.cluster, fleet.desired, options, fleet.sizes)

    cluster = dict(reversed(list(fleet.cluster.items())))
    again = plan_rebuild(reordered(fleet.current), cluster, fleet.desired[::-1], options, fleet.sizes)

    assert again == plan


@fast
@given(fleets(), rebuilds)
def test_replicas_whose_broker_stays_stay_where_they_are(fleet: Fleet, options: RebuildOptions) -> None:
    plan = rebuilt(fleet, replace(options, force=False, optimize="distribution", optimize_leadership=False))

    for key, before in fleet.current.items():
        after = plan.after[key]
        staying = [id for id in before if id in plan.members.usable]
        assert staying[: len(after)] == [id for id in after if id in before]
        if not options.replication:
            assert all(new == old for old, new in zip(before, after, strict=True) if old in staying)


@fast
@given(fleets(), rebuilds)
def test_only_as_many_replicas_move_as_lose_their_broker_or_are_added(fleet: Fleet, options: RebuildOptions) -> None:
    plan = rebuilt(fleet, replace(options, force=False))

    for key, before in fleet.current.items():
        staying = sum(id in plan.members.usable for id in before)
        goal = options.replication or len(before)
        assert len(set(plan.after[key]) - set(before)) == max(goal - staying, 0)


@fast
@given(fleets(), rebuilds)
def test_replicas_are_on_desired_brokers_in_racks_of_their_own(fleet: Fleet, options: RebuildOptions) -> None:
    plan = rebuilt(fleet, options)

    for key, replicas in plan.after.items():
        assert set(replicas) <= set(fleet.desired)
        assert len(set(replicas)) == len(replicas) == (options.replication or len(fleet.current[key]))
        racks = {fleet.rack(id) for id in replicas}
        assert len(racks) >= min(options.min_rack_ids or len(replicas), len(replicas))


@fast
@given(fleets(), rebuilds)
def test_a_plan_made_again_once_it_is_applied_is_a_no_op(fleet: Fleet, options: RebuildOptions) -> None:
    options = replace(options, force=False)
    plan = rebuilt(fleet, options)

    free = plan.free_after or {}
    cluster = {id: replace(broker, free=free.get(id, broker.free)) for id, broker in fleet.cluster.items()}
    again = plan_rebuild(plan.after, cluster, fleet.desired, options, fleet.sizes)

    assert again.after == plan.after


@fast
@given(fleets(), rebuilds)
def test_free_space_goes_exactly_where_the_replicas_go(fleet: Fleet, options: RebuildOptions) -> None:
    plan = rebuilt(fleet, replace(options, placement="storage", replication=0))

    assert plan.free_before is not None
    assert plan.free_after is not None
    for id, after in plan.free_after.items():
        lost = sum(size for key, size in fleet.sizes.items() if id in plan.before[key])
        gained = sum(size for key, size in fleet.sizes.items() if id in plan.after[key])
        assert after == plan.free_before[id] + lost - gained


@fast
@given(fleets())
def test_forced_count_leaves_no_broker_more_than_one_replica_ahead(fleet: Fleet) -> None:
    racks: dict[str, int] = {}
    for id in fleet.desired:
        racks[fleet.rack(id)] = racks.get(fleet.rack(id), 0) + 1
    assume(len(set(racks.values())) == 1)

    counts = rebuilt(fleet, RebuildOptions(force=True)).after.replica_counts()

    held = [counts.get(id, 0) for id in fleet.desired]
    assert max(held) - min(held) <= 1


@fast
@given(fleets())
def test_a_forced_rebuild_made_again_moves_nothing(fleet: Fleet) -> None:
    first = rebuilt(fleet, RebuildOptions(force=True))
    second = plan_rebuild(first.after, fleet.cluster, fleet.desired, RebuildOptions(force=True))

    assert second.after == first.after


@fast
@given(fleets())
def test_leaders_are_as_even_as_any_choice_of_leaders(fleet: Fleet) -> None:
    sets = dict(list(fleet.current.items())[:6])
    balanced = balance_leaders(PartitionMap(sets))

    def unevenness(leaders: tuple[int, ...]) -> int:
        return sum(leaders.count(id) ** 2 for id in set(leaders))

    best = min(unevenness(choice) for choice in product(*sets.values()))
    assert unevenness(tuple(replicas[0] for replicas in balanced.values())) == best
    assert {key: set(replicas) for key, replicas in balanced.items()} == {key: set(s) for key, s in sets.items()}
    assert balance_leaders(balanced) == balanced


@fast
@given(fleets(), st.data())
def test_evacuated_brokers_lead_nothing_that_another_broker_holds(fleet: Fleet, data: st.DataObject) -> None:
    evacuated = data.draw(st.sets(st.sampled_from(sorted(fleet.cluster))))

    after, errors = evacuate_leadership(fleet.current, evacuated)

    stuck = [key for key, replicas in after.items() if replicas[0] in evacuated]
    assert len(errors) == len(stuck)
    assert all(set(after[key]) <= evacuated for key in stuck)
    assert all(set(after[key]) == set(fleet.current[key]) for key in after)


@fast
@given(fleets(), rebuilds, st.integers(1, 3))
def test_chunks_compose_to_the_plan_and_empty_few_brokers_each(
    fleet: Fleet, options: RebuildOptions, size: int
) -> None:
    plan = rebuilt(fleet, options)

    state = plan.before
    for chunk in chunks(plan, size):
        following = state.updated(chunk)
        givers = {id for key in chunk for id in state[key] if id not in following[key]}
        assert len(givers) <= size
        if options.min_rack_ids == 0:
            assert all(fleet.racks_differ(replicas) for replicas in following.values())
        state = following

    assert state == plan.after


@fast
@given(fleets(), rebuilds)
def test_the_first_phase_keeps_every_leader_and_copies_everything(fleet: Fleet, options: RebuildOptions) -> None:
    plan = rebuilt(fleet, options)

    first, last = phases(plan)

    assert last == plan.after
    for key, replicas in first.items():
        assert replicas[0] == plan.before[key][0]
        assert set(replicas) == {plan.before[key][0], *plan.after[key]}


rebalances = st.builds(
    RebalanceOptions,
    threshold=st.sampled_from([0.05, 0.2]),
    tolerance=st.sampled_from([None, 0.1, 0.5]),
    rack_local=st.booleans(),
    partition_limit=st.integers(1, 5),
)


@fast
@given(fleets(additions_only=True), rebalances)
def test_a_rebalance_moves_replicas_off_targets_only_and_makes_nothing_worse(
    fleet: Fleet, options: RebalanceOptions
) -> None:
    plan = plan_rebalance(fleet.current, fleet.cluster, fleet.desired, fleet.sizes, options)

    assert plan.free_before is not None
    assert plan.free_after is not None
    for key, before in plan.before.items():
        after = plan.after[key]
        pairs = [(old, new) for old, new in zip(before, after, strict=True) if old != new]
        assert all(old in plan.targets and new not in plan.targets for old, new in pairs)
        assert fleet.racks_differ(after)
        if options.rack_local:
            assert all(fleet.rack(old) == fleet.rack(new) for old, new in pairs)
    wide, deviation = spread_of(plan.free_before)
    assert spread_of(plan.free_after)[0] <= wide or spread_of(plan.free_after)[1] <= deviation
    assert sum(plan.free_after.values()) == sum(plan.free_before.values())


def spread_of(free: Mapping[int, float]) -> tuple[float, float]:
    return max(free.values()) - min(free.values()), pstdev(free.values())


@fast
@given(fleets(additions_only=True), rebalances)
def test_trying_all_tolerances_is_at_least_as_good_as_any_one(fleet: Fleet, options: RebalanceOptions) -> None:
    one = plan_rebalance(fleet.current, fleet.cluster, fleet.desired, fleet.sizes, replace(options, tolerance=0.37))
    best = plan_rebalance(fleet.current, fleet.cluster, fleet.desired, fleet.sizes, replace(options, tolerance=None))

    assert one.free_after is not None
    assert best.free_after is not None
    assert spread_of(best.free_after)[0] <= spread_of(one.free_after)[0]


@fast
@given(fleets(), st.integers(1, 8), st.integers(1, 3))
def test_new_topics_are_spread_over_racks_brokers_and_leaders(fleet: Fleet, partitions: int, replication: int) -> None:
    assume(replication <= len(fleet.cluster))

    existing = PartitionMap({})
    for topic in ("a", "b", "c"):
        added = assign_partitions(topic, range(partitions), replication, fleet.cluster, existing)
        existing = existing.updated(added)

    racks = {broker.rack for broker in fleet.cluster.values()}
    for replicas in existing.values():
        assert len(replicas) == replication
        assert len({fleet.rack(id) for id in replicas}) == min(len(racks), replication)
    leaders = [existing.leader_counts().get(id, 0) for id in fleet.cluster]
    held = [existing.replica_counts().get(id, 0) for id in fleet.cluster]
    assert max(held) - min(held) <= 1
    assert max(leaders) - min(leaders) <= 2


@fast
@given(fleets())
def test_a_map_survives_its_document(fleet: Fleet) -> None:
    assert parse_map(render_map(fleet.current)) == fleet.current
