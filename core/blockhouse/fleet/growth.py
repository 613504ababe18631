"""What log directories show between two looks: how fast partitions are written and replicas arrive, and what is left.

Arithmetic on two samples; retention makes a log smaller, which shows nothing about writes.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from blockhouse.fleet.model import Storage
from blockhouse.placement.model import TopicPartition
from blockhouse.throttle.model import MoveSeen

ReplicaOf = tuple[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class Sized:
    """Sizes of all replicas at a moment of a monotonic clock."""

    at: float
    storage: Storage


@dataclass(frozen=True, slots=True)
class Growth:
    """Bytes/s written to each partition that moves and copied to each replica that arrives; bytes left of the latter.

    A rate is missing where a replica was not there in both samples, or became smaller.
    """

    written: Mapping[TopicPartition, float] = field(default_factory=dict)
    copied: Mapping[ReplicaOf, float] = field(default_factory=dict)
    remaining: Mapping[ReplicaOf, float] = field(default_factory=dict)


def growth(moves: Mapping[TopicPartition, MoveSeen], before: Sized | None, now: Sized) -> Growth:
    """Compare two samples for the partitions that move. Without `before` only what remains is known."""
    written: dict[TopicPartition, float] = {}
    copied: dict[ReplicaOf, float] = {}
    remaining: dict[ReplicaOf, float] = {}
    for key, move in moves.items():
        whole = now.storage.replicas.get((key, move.leader)) if move.leader is not None else None
        if whole is not None and move.leader is not None:
            rate = _rate((key, move.leader), before, now)
            if rate is not None:
                written[key] = rate
        for broker in move.arriving:
            arrived = now.storage.replicas.get((key, broker))
            if whole is not None:
                remaining[key, broker] = max(whole.size - (arrived.size if arrived else 0.0), 0.0)
            rate = _rate((key, broker), before, now)
            if rate is not None:
                copied[key, broker] = rate
    return Growth(written, copied, remaining)


def _rate(replica: ReplicaOf, before: Sized | None, now: Sized) -> float | None:
    if before is None or now.at <= before.at:
        return None
    old, new = before.storage.replicas.get(replica), now.storage.replicas.get(replica)
    if old is None or new is None or new.size < old.size:
        return None
    return (new.size - old.size) / (now.at - before.at)
