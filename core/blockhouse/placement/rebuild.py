"""Rebuild a partition map on a list of brokers: replace, add, drop, change the replication, or start afresh.

A replica whose broker stays is never moved unless the rebuild is forced. Slots are filled one after the other,
position by position (or partition by partition), each with the best broker that passes its constraints.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from blockhouse.placement.affinity import substitutes
from blockhouse.placement.constraints import Slot
from blockhouse.placement.drafts import Draft, even_out
from blockhouse.placement.homing import spare_moves, unless_more_even
from blockhouse.placement.leadership import balance_leaders
from blockhouse.placement.membership import Membership, compare_membership
from blockhouse.placement.model import Broker, InvalidInput, PartitionMap, ReplicaSet, Sizes, TopicPartition
from blockhouse.placement.plan import Plan, check_sizes, known_free_space
from blockhouse.placement.ranking import ByCount, ByFreeSpace, Ranking


@dataclass(frozen=True, slots=True)
class RebuildOptions:
    """How to rebuild. `replication` 0 keeps each partition's own factor; `size_factor` is head room (1.2 = 20 %)."""

    placement: Literal["count", "storage"] = "count"
    optimize: Literal["distribution", "storage"] = "distribution"
    replication: int = 0
    force: bool = False
    sub_affinity: bool = False
    optimize_leadership: bool = False
    min_rack_ids: int = 0
    size_factor: float = 1.0

    def __post_init__(self) -> None:
        rules = {
            f"replication {self.replication}: give at least 1, or 0 to keep it": self.replication < 0,
            f"min-rack-ids {self.min_rack_ids}: give 0 (all racks differ) or more": self.min_rack_ids < 0,
            f"partition-size-factor {self.size_factor}: give more than 0": self.size_factor <= 0,
            "sub-affinity keeps the slots as they are, force-rebuild forgets them: choose one": self.force
            and self.sub_affinity,
        }
        if any(rules.values()):
            raise InvalidInput(problem for problem, broken in rules.items() if broken)


def plan_rebuild(
    current: PartitionMap,
    cluster: Mapping[int, Broker],
    desired: Iterable[int],
    options: RebuildOptions | None = None,
    sizes: Sizes | None = None,
) -> Plan:
    """Plan the map `current` on the `desired` brokers of the `cluster`.

    Raises InvalidInput when the input contradicts itself, sizes or free space are missing for a plan by storage, or
    a substitute cannot be found. Slots that no broker may take are errors of the plan.
    """
    options = options or RebuildOptions()
    members = compare_membership(current, cluster, desired)
    by_storage = options.placement == "storage"
    if by_storage:
        check_sizes(current, sizes or {})
    drafts = [_draft(key, replicas, members, options, sizes or {}) for key, replicas in current.items()]
    free = _free_after_removal(drafts, current, cluster, members, options) if by_storage else {}
    usable = {id: cluster[id] for id in members.usable}
    taken_over = substitutes(current, cluster, members) if options.sub_affinity else {}
    if by_storage:
        errors = tuple(_fill(drafts, ByFreeSpace(usable, free, usable), usable, options, taken_over))
        after = PartitionMap({draft.key: _finished(draft, options) for draft in drafts})
    else:
        after, errors = _by_count(drafts, current, usable, options, taken_over)
    return Plan(
        before=current,
        after=balance_leaders(after) if options.optimize_leadership else after,
        cluster=cluster,
        members=members,
        errors=errors,
        free_before=known_free_space(cluster, free) if by_storage else None,
        free_after=free if by_storage else None,
    )


def _by_count(
    drafts: list[Draft],
    current: PartitionMap,
    usable: Mapping[int, Broker],
    options: RebuildOptions,
    taken_over: Mapping[int, int],
) -> tuple[PartitionMap, tuple[str, ...]]:
    """Fill the drafts and even them out; when forced, move no more than that needs. Returns the map and errors."""
    ranking = ByCount(usable, _used(drafts, usable.values()))
    errors = tuple(_fill(drafts, ranking, usable, options, taken_over))
    used = dict(ranking.used) if taken_over else even_out(drafts, usable, ranking.used, options.min_rack_ids)
    if options.force:
        spare_moves(drafts, usable, used, options.min_rack_ids)
    after = PartitionMap({draft.key: _finished(draft, options) for draft in drafts})
    if options.force:
        after = unless_more_even(current, balance_leaders(after), usable, options.min_rack_ids)
    return after, errors


def place_new(
    keys: Iterable[TopicPartition], cluster: Mapping[int, Broker], existing: PartitionMap, options: RebuildOptions
) -> PartitionMap:
    """Sets for partitions that have none, by count, on top of the replicas of `existing`.

    Raises InvalidInput naming every slot that no broker may take.
    """
    empty: list[int | None] = [None] * options.replication
    drafts = [Draft(key, (), list(empty), list(empty)) for key in keys]
    held = existing.replica_counts()
    ranking = ByCount(cluster, {id: broker.used + held.get(id, 0) for id, broker in cluster.items()})
    problems = tuple(_fill(drafts, ranking, cluster, options, {}))
    even_out(drafts, cluster, ranking.used, options.min_rack_ids)
    if problems:
        raise InvalidInput(problems)
    return PartitionMap({draft.key: draft.present for draft in drafts})


def _draft(
    key: TopicPartition, replicas: ReplicaSet, members: Membership, options: RebuildOptions, sizes: Sizes
) -> Draft:
    goal = options.replication or len(replicas)
    kept = list(replicas)
    if not options.force:  # a broker that leaves anyway is dropped first: it saves a move
        for id in [id for id in reversed(replicas) if id in members.leaving][: max(len(kept) - goal, 0)]:
            kept.remove(id)
    kept = kept[:goal]
    extra: list[int | None] = [None] * (goal - len(kept))
    stays = [None if options.force or id in members.leaving else id for id in kept]
    return Draft(key, replicas, stays + extra, [*kept, *extra], sizes.get(key, 0.0))


def _used(drafts: Iterable[Draft], usable: Iterable[Broker]) -> dict[int, int]:
    used = {broker.id: broker.used for broker in usable}
    for draft in drafts:
        for id in draft.present:
            used[id] += 1
    return used


def _free_after_removal(
    drafts: Iterable[Draft],
    current: PartitionMap,
    cluster: Mapping[int, Broker],
    members: Membership,
    options: RebuildOptions,
) -> dict[int, float]:
    """Free bytes once every replica that will be placed again is thought away from the broker that holds it."""
    free = known_free_space(cluster, (current.brokers() & set(cluster)) | set(members.usable))
    for draft in drafts:
        for id in draft.leaves:
            if id in free and (options.force or id in members.leaving):
                free[id] += draft.size
    return free


def _fill(
    drafts: list[Draft],
    ranking: Ranking,
    usable: Mapping[int, Broker],
    options: RebuildOptions,
    taken_over: Mapping[int, int],
) -> Iterator[str]:
    """Fill every open slot in place; yields an error for each that stays open."""
    for draft, position, seed in _open_slots(drafts, options):
        need = draft.size * options.size_factor if options.placement == "storage" else 0.0
        slot = Slot(draft.present, usable, min_rack_ids=options.min_rack_ids, need=need)
        leaves = draft.leaves[position]
        substitute = None if leaves is None else taken_over.get(leaves)
        if substitute is None:
            choice = ranking.choose(slot, former=draft.former, seed=seed)
            reason = "" if choice is not None else ranking.explain(slot)
        else:
            choice, reason = _substitution(slot, usable[substitute], ranking)
        if choice is None:
            yield f"{draft.key}: no broker may take replica {position}: {reason}"
            continue
        ranking.place(choice, need)
        draft.slots[position] = choice


def _substitution(slot: Slot, substitute: Broker, ranking: Ranking) -> tuple[int | None, str]:
    refusal = slot.refusal(substitute, ranking.free_space(substitute.id))
    if refusal is None:
        return substitute.id, ""
    return None, f"its substitute {substitute.id} is refused ({refusal.name.lower().replace('_', ' ')})"


def _open_slots(drafts: list[Draft], options: RebuildOptions) -> Iterator[tuple[Draft, int, int]]:
    """Open slots in the order they are filled, each with the seed of its choice."""
    order = drafts
    if options.placement == "storage":
        order = sorted(drafts, key=lambda draft: (-draft.size, draft.key.partition, draft.key.topic))
    longest = max((len(draft.slots) for draft in order), default=0)
    walk: Iterable[tuple[int, int]]
    if options.placement == "storage" and options.optimize == "storage":
        walk = ((position, index) for index in range(len(order)) for position in range(longest))
    else:
        walk = ((position, index) for position in range(longest) for index in range(len(order)))
    for position, index in walk:
        draft = order[index]
        if position < len(draft.slots) and draft.slots[position] is None:
            yield draft, position, seed_of(position, index)


def _finished(draft: Draft, options: RebuildOptions) -> ReplicaSet:
    """The filled set; the current one when a slot stayed open.

    Sets filled partition by partition are shuffled: the freest broker would otherwise lead all of them.
    """
    chosen = draft.present
    if len(chosen) < len(draft.slots):
        return draft.former
    if options.placement == "storage" and options.optimize == "storage" and draft.open:
        chosen.sort(key=lambda id: seed_of(*draft.key, id))
    return tuple(chosen)


def seed_of(*parts: object) -> int:
    """A number that looks like chance and is always the same for the same parts."""
    text = "/".join(map(str, parts)).encode()
    return int.from_bytes(hashlib.blake2b(text, digest_size=8).digest(), "big")
