"""From partitions that move to the brokers and lists that a throttle has to name, and the least rates they need."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass

from blockhouse.placement.model import TopicPartition
from blockhouse.throttle.model import ListPlace, MoveSeen, Place, Role

FLOOR_MARGIN = 1.2
"""A copy that is exactly as fast as the producers never ends; a fifth more does."""


@dataclass(frozen=True, slots=True)
class Participants:
    """`floors` names every broker and role that takes part, with the least rate in bytes/s at which its moves end."""

    floors: Mapping[Place, float]
    lists: Mapping[ListPlace, frozenset[str]]


def participants(moves: Mapping[TopicPartition, MoveSeen], write_rates: Mapping[TopicPartition, float]) -> Participants:
    """Who takes part in what still copies: whatever is in sync takes no part any more.

    Every holder is named as a source, for any may become the leader in the middle; only today's leader has a floor.
    """
    floors: dict[Place, float] = defaultdict(float)
    lists: dict[ListPlace, set[str]] = defaultdict(set)
    for key, move in moves.items():
        arriving = move.arriving
        if not arriving:
            continue
        need = FLOOR_MARGIN * max(write_rates.get(key, 0.0), 0.0)
        for broker in arriving:
            floors[broker, Role.FOLLOWER] += need
            lists[key.topic, Role.FOLLOWER].add(f"{key.partition}:{broker}")
        for broker in move.holders:
            floors[broker, Role.LEADER] += need * len(arriving) if broker == move.leader else 0.0
            lists[key.topic, Role.LEADER].add(f"{key.partition}:{broker}")
    return Participants(dict(floors), {place: frozenset(entries) for place, entries in lists.items()})
