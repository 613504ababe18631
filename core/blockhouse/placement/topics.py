"""Which topics a plan concerns, and where the partitions of new ones go. Existing replicas are never touched here."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence

from blockhouse.placement.leadership import balance_leaders
from blockhouse.placement.model import Broker, InvalidInput, PartitionMap, TopicPartition
from blockhouse.placement.rebuild import RebuildOptions, place_new


def select_topics(current: PartitionMap, include: Sequence[str] = (), exclude: Sequence[str] = ()) -> PartitionMap:
    """Partitions of the topics that match an `include` expression (all, without any) and no `exclude` one.

    Expressions match whole names. Raises InvalidInput for an invalid one, for an `include` that matches nothing, and
    when nothing is left.
    """
    problems: list[str] = []
    includes, excludes = _compile(include, problems), _compile(exclude, problems)
    topics = current.topics()
    shown = ", ".join(topics[:10]) + (", ..." if len(topics) > 10 else "")
    problems += [
        f"no topic matches {pattern.pattern!r}; the topics are: {shown}"
        for pattern in includes
        if not any(pattern.fullmatch(topic) for topic in topics)
    ]
    if problems:
        raise InvalidInput(problems)
    chosen = {
        topic
        for topic in topics
        if (not includes or any(p.fullmatch(topic) for p in includes)) and not any(p.fullmatch(topic) for p in excludes)
    }
    if topics and not chosen:
        raise InvalidInput([f"every topic is excluded; the topics are: {shown}"])
    return current.only(chosen.__contains__)


def _compile(patterns: Iterable[str], problems: list[str]) -> list[re.Pattern[str]]:
    compiled = []
    for pattern in patterns:
        try:
            compiled.append(re.compile(pattern))
        except re.error as wrong:
            problems.append(f"{pattern!r} is not a regular expression: {wrong}")
    return compiled


def assign_partitions(
    topic: str,
    numbers: Iterable[int],
    replication: int,
    cluster: Mapping[int, Broker],
    existing: PartitionMap,
    min_rack_ids: int | None = None,
) -> PartitionMap:
    """Replica sets for new partitions (`numbers`) of a new or growing topic, balanced over `existing`.

    Replicas and leaders are evened out over all of `existing`, normally every topic of the pipeline. Replicas of a
    partition are in racks of their own; where there are fewer racks than replicas, in as many racks as there are
    (`min_rack_ids` asks for another number, 0 for all different). Raises InvalidInput when there are too few
    brokers or racks, or a partition exists already.
    """
    keys = [TopicPartition(topic, number) for number in numbers]
    problems = [f"{key} exists already; assign only new partitions" for key in keys if key in existing]
    if not 1 <= replication <= len(cluster):
        problems.append(
            f"topic {topic}: {replication} replicas cannot be placed on {len(cluster)} brokers; "
            "give between 1 and the number of brokers"
        )
    if problems:
        raise InvalidInput(problems)
    if min_rack_ids is None:
        racks = {broker.rack for broker in cluster.values()} - {""}
        min_rack_ids = len(racks) if len(racks) < replication else 0
    placed = place_new(keys, cluster, existing, RebuildOptions(replication=replication, min_rack_ids=min_rack_ids))
    return balance_leaders(placed, base=existing.leader_counts())
