"""Rebalance and scale: move single replicas off brokers short of space until free space is even. Only additions.

Brokers to unload ("targets") are visited in turn, one move per visit, so that relief is spread. The tolerance sets
how far past the mean a move may take either side; without one given, every tolerance of a grid is tried.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from statistics import harmonic_mean
from typing import Literal

from blockhouse.placement.leadership import balance_leaders
from blockhouse.placement.membership import Membership, compare_membership
from blockhouse.placement.model import Broker, InvalidInput, PartitionMap, Sizes
from blockhouse.placement.plan import Plan, check_sizes, known_free_space
from blockhouse.placement.relocation import Attempt, Setting

TOLERANCES = tuple(n / 100 for n in range(1, 99))
MIB = 1 << 20
GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class RebalanceOptions:
    """How to rebalance.

    `threshold` is the fraction below the harmonic mean that makes a broker a target; `threshold_gib` > 0 takes its
    place (free space in GiB). `tolerance` None tries the grid. `partition_limit` is how many of a broker's largest
    partitions a visit considers, `min_partition_mib` how large they must be.
    """

    operation: Literal["rebalance", "scale"] = "rebalance"
    threshold: float = 0.20
    threshold_gib: float = 0.0
    tolerance: float | None = None
    partition_limit: int = 30
    min_partition_mib: float = 512
    rack_local: bool = False
    min_rack_ids: int = 0
    optimize_leadership: bool = False

    def __post_init__(self) -> None:
        rules = {
            f"storage-threshold {self.threshold}: give a fraction above 0 and below 1": not 0 < self.threshold < 1,
            f"storage-threshold-gb {self.threshold_gib}: give 0 (not used) or more": self.threshold_gib < 0,
            f"tolerance {self.tolerance}: give a fraction above 0 and below 1": self.tolerance is not None
            and not 0 < self.tolerance < 1,
            f"partition-limit {self.partition_limit}: give at least 1": self.partition_limit < 1,
            f"min-rack-ids {self.min_rack_ids}: give 0 (all racks differ) or more": self.min_rack_ids < 0,
        }
        if any(rules.values()):
            raise InvalidInput(problem for problem, broken in rules.items() if broken)


def plan_rebalance(
    current: PartitionMap,
    cluster: Mapping[int, Broker],
    desired: Iterable[int],
    sizes: Sizes,
    options: RebalanceOptions | None = None,
) -> Plan:
    """Plan moves that make free space even, or (scale) give the new brokers their share.

    Raises InvalidInput when sizes or free space are missing or the input contradicts itself. Brokers that leave, or
    a scale without a new broker, are errors of the plan.
    """
    options = options or RebalanceOptions()
    members = compare_membership(current, cluster, desired)
    check_sizes(current, sizes)
    errors = _membership_errors(members, options)
    if errors:
        return Plan(current, current, cluster, members, errors=errors)
    free = known_free_space(cluster, members.usable)
    if max(free.values()) <= 0:
        raise InvalidInput(["no broker has free space left, so no replica can move; add brokers with free space"])
    targets = offload_targets(free, members, options)
    setting = _setting(current, cluster, sizes, free, targets, options)
    best = _best(setting, (options.tolerance,) if options.tolerance is not None else TOLERANCES)
    after = current.updated(best.sets) if best.improves_on(free) else current
    return Plan(
        before=current,
        after=balance_leaders(after) if options.optimize_leadership else after,
        cluster=cluster,
        members=members,
        free_before=free,
        free_after=best.free if best.improves_on(free) else dict(free),
        targets=targets,
        tolerance=best.tolerance,
    )


def _setting(
    current: PartitionMap,
    cluster: Mapping[int, Broker],
    sizes: Sizes,
    free: Mapping[int, float],
    targets: tuple[int, ...],
    options: RebalanceOptions,
) -> Setting:
    return Setting(
        current=current,
        cluster=cluster,
        sizes=sizes,
        free=free,
        targets=targets,
        limit=options.partition_limit,
        min_size=options.min_partition_mib * MIB,
        rack_local=options.rack_local,
        min_rack_ids=options.min_rack_ids,
    )


def _membership_errors(members: Membership, options: RebalanceOptions) -> tuple[str, ...]:
    advice = f"a {options.operation} only adds brokers; use rebuild to replace it"
    errors = [f"broker {id} holds replicas but is not in the list: {advice}" for id in members.replaced]
    errors += [f"broker {id} holds replicas but is not in the cluster: {advice}" for id in members.missing]
    if options.operation == "scale" and not members.new:
        errors.append("every broker in the list already holds replicas: scale needs new ones; use rebalance")
    return tuple(errors)


def offload_targets(free: Mapping[int, float], members: Membership, options: RebalanceOptions) -> tuple[int, ...]:
    """Ids of the brokers to unload, least free space first."""
    if options.operation == "scale":
        chosen = [id for id in free if id not in members.new]
    elif options.threshold_gib > 0:
        chosen = [id for id, space in free.items() if space < options.threshold_gib * GIB]
    else:
        mean = harmonic_mean([space for space in free.values() if space > 0] or [1.0])
        chosen = [id for id, space in free.items() if (mean - space) / mean > options.threshold]
    return tuple(sorted(chosen, key=lambda id: (free[id], id)))


def _best(setting: Setting, tolerances: Iterable[float]) -> Attempt:
    """The attempt with the least range, then the least deviation, then the lowest tolerance."""
    attempts: list[Attempt] = []
    for tolerance in tolerances:
        if not attempts or tolerance >= attempts[-1].valid_below:
            attempts.append(Attempt(setting, tolerance))
    return min(attempts, key=lambda attempt: (*attempt.spread, attempt.tolerance))
