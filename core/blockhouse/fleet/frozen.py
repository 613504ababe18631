"""A plan that people approve: frozen, with a hash, and judged partition by partition against the cluster of now.

The hash covers the cluster's id, the id of every topic and from -> to of every partition, so an approval can mean
nothing else. One partition that is gone or waits for a dead broker stops no other. No client, no clock.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property

from blockhouse.errors import Permanent
from blockhouse.fleet.model import Move, PartitionState
from blockhouse.placement.leadership import lead
from blockhouse.placement.model import PartitionMap, ReplicaSet, TopicPartition

VERSION = 1
HASH_DIGITS = 16


@dataclass(frozen=True, slots=True)
class PlannedMove:
    """One partition: where it was and where it goes; `size` in bytes of one replica, 0 while unknown."""

    key: TopicPartition
    before: ReplicaSet
    after: ReplicaSet
    size: float = 0.0

    @property
    def bytes(self) -> float:
        """What has to be copied."""
        return self.size * len(set(self.after) - set(self.before))


@dataclass(frozen=True)
class FrozenPlan:
    """Moves in map order. `inputs` records what the plan was computed from, so that an edit is noticed."""

    cluster_id: str
    topic_ids: Mapping[str, str]
    moves: tuple[PlannedMove, ...]
    inputs: str = ""
    phased: bool = False

    @property
    def hash(self) -> str:
        """What an approval names."""
        content = [
            self.cluster_id,
            sorted(self.topic_ids.items()),
            self.phased,
            [(*move.key, move.before, move.after) for move in self.moves],
        ]
        return hashlib.sha256(json.dumps(content).encode()).hexdigest()[:HASH_DIGITS]

    @property
    def bytes(self) -> float:
        return sum(move.bytes for move in self.moves)

    def concerns(self, key: TopicPartition, target: ReplicaSet) -> bool:
        """Whether a move of the partition to this set is one of the plan."""
        return any(target in _stages(self, move) for move in self._by_key.get(key, ()))

    @cached_property
    def _by_key(self) -> Mapping[TopicPartition, tuple[PlannedMove, ...]]:
        return {move.key: (move,) for move in self.moves}


def freeze(
    cluster_id: str,
    topic_ids: Mapping[str, str],
    before: PartitionMap,
    after: PartitionMap,
    sizes: Mapping[TopicPartition, float],
    inputs: str = "",
    *,
    phased: bool = False,
) -> FrozenPlan:
    """The partitions that change."""
    moves = tuple(
        PlannedMove(key, before[key], replicas, sizes.get(key, 0.0))
        for key, replicas in after.changed_from(before).items()
    )
    topics = {move.key.topic for move in moves}
    return FrozenPlan(cluster_id, {topic: topic_ids[topic] for topic in sorted(topics)}, moves, inputs, phased)


class Verdict(StrEnum):
    """How one partition of a plan stands; each reads as "the partition ..."."""

    DONE = "is as planned"
    ELECTING = "has its replicas, and not yet its leader or all in sync"
    MOVING = "is moving"
    WAITING = "has not begun"
    DEAD = "waits for a broker that is not alive"
    FOREIGN = "is moved elsewhere by something else"
    GONE = "is gone, or its topic was re-created"
    NEITHER = "is at neither end of its move"


@dataclass(frozen=True, slots=True)
class Seen:
    """The cluster at one moment."""

    partitions: Mapping[TopicPartition, PartitionState]
    moves: Mapping[TopicPartition, Move]
    live: Collection[int]
    topic_ids: Mapping[str, str]


def judge(plan: FrozenPlan, seen: Seen) -> dict[TopicPartition, Verdict]:
    """A verdict for each partition of the plan, in its order."""
    return {move.key: _judge(plan, move, seen) for move in plan.moves}


def next_target(plan: FrozenPlan, move: PlannedMove, seen: Seen) -> ReplicaSet:
    """The set to ask Kafka for next: the planned one, or in phases first the new replicas under the old leader."""
    state = seen.partitions[move.key]
    if plan.phased and move.before[0] in seen.live and set(state.replicas) == set(move.before):
        first = lead(move.after, move.before[0])
        return move.after if first == state.replicas else first
    return move.after


def _stages(plan: FrozenPlan, move: PlannedMove) -> list[ReplicaSet]:
    """The sets that the plan asks Kafka for."""
    return [move.after, lead(move.after, move.before[0])] if plan.phased else [move.after]


def _judge(plan: FrozenPlan, move: PlannedMove, seen: Seen) -> Verdict:
    state = seen.partitions.get(move.key)
    if state is None or seen.topic_ids.get(move.key.topic) != plan.topic_ids.get(move.key.topic):
        return Verdict.GONE
    under_way = seen.moves.get(move.key)
    stages = _stages(plan, move)
    if under_way is not None:
        return Verdict.MOVING if under_way.target in stages else Verdict.FOREIGN
    dead = [broker for broker in move.after if broker not in seen.live]
    if state.replicas == move.after:
        well = state.leader == move.after[0] and state.in_sync >= set(move.after)
        return Verdict.DONE if well else Verdict.DEAD if dead else Verdict.ELECTING
    # Kafka gives cancelled partitions their brokers back, but not their order.
    if not any(set(state.replicas) == set(end) for end in (move.before, *stages)):
        return Verdict.NEITHER
    return Verdict.DEAD if dead else Verdict.WAITING


def render(plan: FrozenPlan) -> str:
    """The document, which `kafka-reassign-partitions` and `blockhouse topics apply` read too."""
    content = {
        "version": VERSION,
        "hash": plan.hash,
        "cluster": plan.cluster_id,
        "topics": dict(plan.topic_ids),
        "inputs": plan.inputs,
        "phased": plan.phased,
    }
    partitions = ",\n".join(
        json.dumps(
            {
                "topic": move.key.topic,
                "partition": move.key.partition,
                "replicas": move.after,
                "before": move.before,
                "bytes": round(move.size),
            }
        )
        for move in plan.moves
    )
    return json.dumps(content)[:-1] + f', "partitions": [\n{partitions}\n]}}'


def parse(text: str, where: str) -> FrozenPlan:
    """Raises Permanent naming `where` the document stands, also when its content does not have its hash."""
    try:
        content = json.loads(text)
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']} is not known")
        plan = FrozenPlan(
            cluster_id=content["cluster"],
            topic_ids=content["topics"],
            moves=tuple(
                PlannedMove(
                    TopicPartition(found["topic"], found["partition"]),
                    tuple(found["before"]),
                    tuple(found["replicas"]),
                    float(found["bytes"]),
                )
                for found in content["partitions"]
            ),
            inputs=content["inputs"],
            phased=content["phased"],
        )
        if plan.hash != content["hash"]:
            raise ValueError("its content does not have its hash: it was changed by hand")
    except (ValueError, KeyError, TypeError) as error:
        raise Permanent(f"{where} is not a frozen plan: {error}", reason="PlanUnreadable") from error
    return plan
