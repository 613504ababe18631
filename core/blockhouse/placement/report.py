"""What a plan changes and why, and what it does to the brokers: values for people and for JSON, no layout."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from statistics import fmean

from blockhouse.placement.model import PartitionMap, ReplicaSet, Sizes, TopicPartition
from blockhouse.placement.plan import Plan
from blockhouse.placement.relocation import spread


class Reason(StrEnum):
    """Why a replica set looks different afterwards."""

    NO_OP = "no-op"
    PREFERRED_LEADER = "preferred leader"
    REPLACED_BROKER = "replaced broker"
    MOVED_REPLICA = "moved replica"
    REPLICATION_UP = "increased replication"
    REPLICATION_DOWN = "decreased replication"
    ORDER = "order of followers"


@dataclass(frozen=True, slots=True)
class PartitionChange:
    """One partition of the plan; `moved` are the brokers that have to copy it."""

    topic: str
    partition: int
    before: ReplicaSet
    after: ReplicaSet
    moved: tuple[int, ...]
    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class BrokerLoad:
    """Preferred leaders and followers of a broker, and its free bytes where the plan considered storage."""

    leaders: int
    followers: int
    free: float | None


@dataclass(frozen=True, slots=True)
class BrokerChange:
    """What a broker holds before and after the plan."""

    id: int
    rack: str
    before: BrokerLoad
    after: BrokerLoad


@dataclass(frozen=True, slots=True)
class Distribution:
    """The whole fleet: free space range and deviation in bytes, and how many partners brokers have (degree)."""

    storage_range: float | None
    storage_deviation: float | None
    degree_min: int
    degree_max: int
    degree_mean: float


@dataclass(frozen=True, slots=True)
class Report:
    """Everything a person needs to decide yes or no. `bytes_moved` is None when the sizes are unknown."""

    partitions: tuple[PartitionChange, ...]
    brokers: tuple[BrokerChange, ...]
    before: Distribution
    after: Distribution
    replicas_moved: int
    bytes_moved: float | None
    targets: tuple[int, ...]
    tolerance: float | None
    notes: tuple[str, ...]
    warnings: tuple[str, ...]
    errors: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The report in JSON types."""
        return asdict(self)


def report_on(plan: Plan, sizes: Sizes | None = None) -> Report:
    """Describe the plan. Sizes, in bytes, only add up what is moved."""
    changes = tuple(_change(plan, key) for key in plan.after)
    ids = sorted(plan.before.brokers() | plan.after.brokers() | set(plan.members.usable))
    return Report(
        partitions=changes,
        brokers=tuple(_broker_changes(plan, ids)),
        before=_distribution(plan.before, plan.free_before),
        after=_distribution(plan.after, plan.free_after),
        replicas_moved=sum(len(change.moved) for change in changes),
        bytes_moved=_volume(changes, sizes or {}),
        targets=plan.targets,
        tolerance=plan.tolerance,
        notes=plan.members.notes,
        warnings=plan.warnings,
        errors=plan.errors,
    )


def _change(plan: Plan, key: TopicPartition) -> PartitionChange:
    before, after = plan.before[key], plan.after[key]
    moved = tuple(id for id in after if id not in before)
    return PartitionChange(*key, before, after, moved, tuple(_reasons(before, after, plan.members.leaving)))


def _reasons(before: ReplicaSet, after: ReplicaSet, leaving: Collection[int]) -> Iterator[Reason]:
    gone, arrived = set(before) - set(after), set(after) - set(before)
    if before == after:
        yield Reason.NO_OP
    if gone & set(leaving):
        yield Reason.REPLACED_BROKER
    if gone - set(leaving) and arrived:
        yield Reason.MOVED_REPLICA
    if len(after) != len(before):
        yield Reason.REPLICATION_UP if len(after) > len(before) else Reason.REPLICATION_DOWN
    if after[0] != before[0]:
        yield Reason.PREFERRED_LEADER
    elif before != after and not gone and not arrived:
        yield Reason.ORDER


def _broker_changes(plan: Plan, ids: Iterable[int]) -> Iterator[BrokerChange]:
    before = _loads(plan.before, plan.free_before or {})
    after = _loads(plan.after, plan.free_after or {})
    for id in ids:
        yield BrokerChange(id, plan.cluster[id].rack if id in plan.cluster else "", before(id), after(id))


def _loads(current: PartitionMap, free: Mapping[int, float]) -> Callable[[int], BrokerLoad]:
    held, led = current.replica_counts(), current.leader_counts()
    return lambda id: BrokerLoad(led.get(id, 0), held.get(id, 0) - led.get(id, 0), free.get(id))


def _volume(changes: Iterable[PartitionChange], sizes: Sizes) -> float | None:
    moving = [change for change in changes if change.moved]
    keys = [TopicPartition(change.topic, change.partition) for change in moving]
    if not all(key in sizes for key in keys):
        return None
    return sum(sizes[key] * len(change.moved) for key, change in zip(keys, moving, strict=True))


def _distribution(current: PartitionMap, free: Mapping[int, float] | None) -> Distribution:
    partners: dict[int, set[int]] = {id: set() for id in current.brokers()}
    for replicas in current.values():
        for id in replicas:
            partners[id].update(replicas)
    degrees = [len(others) - 1 for others in partners.values()]
    wide, deviation = spread(free) if free else (None, None)
    return Distribution(wide, deviation, min(degrees), max(degrees), fmean(degrees))
