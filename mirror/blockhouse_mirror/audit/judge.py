"""Audits a mirror: every partition of it, up to its position. Reads only."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator
from typing import Any

from blockhouse.config.mirror import MirrorConfig
from blockhouse.errors import Retryable
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.audit.compare import Compacted, Offsets, PartitionAudit, compare
from blockhouse_mirror.audit.reading import read
from blockhouse_mirror.kafka.bounds import Bounds, LogBounds
from blockhouse_mirror.kafka.positions import read_positions
from blockhouse_mirror.kafka.topics import MirrorTopics
from blockhouse_mirror.protocol import provenance
from blockhouse_mirror.protocol.position import Position


def audit(config: MirrorConfig) -> Iterator[PartitionAudit]:
    """Partition after partition. What the source's retention has taken is not judged, nor what came from the target.

    Raises Retryable when a cluster does not answer, Permanent for positions that cannot be read.
    """
    topics = MirrorTopics(config)
    try:
        found = topics.look()
        compacted = topics.compacted(found)
        letters = _letters(config, topics.dead_letters())
    finally:
        topics.close()
    targets = {key: Key(topic.target, key.partition) for topic in found.topics for key in topic.all_partitions}
    positions = read_positions(config.target, config.group, list(targets.values()))
    sources, copies = LogBounds(config.source).of(list(targets)), LogBounds(config.target).of(list(targets.values()))
    for key, target in targets.items():
        position = positions.get(target)
        if position is not None:
            if key not in sources or target not in copies:
                raise Retryable(f"the leader of {key.topic}/{key.partition} does not answer where its log ends")
            ends = sources[key], copies[target]
            kept = letters[position.cluster, position.topic_id, key.partition]
            ways = Compacted(*compacted[key.topic]), kept
            yield _partition(config, found.target_cluster, key, position, target, *ends, *ways)


def _partition(
    config: MirrorConfig,
    target_cluster: str,
    key: Key,
    position: Position,
    target: Key,
    source_bounds: Bounds,
    target_bounds: Bounds,
    compacted: Compacted,
    letters: Collection[int],
) -> PartitionAudit:
    def in_source(message: Any) -> int | None:
        return None if provenance.came_from(message.headers() or (), target_cluster) else int(message.offset())

    def on_target(message: Any) -> int | None:
        origin = provenance.newest(message.headers() or ())
        if origin is None or (origin.cluster, origin.topic_id, origin.partition) != own:
            return None
        return origin.offset

    own = (position.cluster, position.topic_id, key.partition)
    # What stands behind the position is not judged, but may be why compaction took what stood before it.
    end = max(position.offset, source_bounds.end) if compacted.source else position.offset
    source = read(config.source, key, end, in_source, times_kept=True)
    copied = read(config.target, target, target_bounds.end, on_target, times_kept=False)
    begin = max(position.start, source_bounds.begin)
    if target_bounds.begin > 0:  # the target's retention has taken what was before the first copy
        begin = max(begin, int(copied.offsets.min()) if copied.offsets.size else position.offset)
    return compare(
        key.topic, key.partition, source, copied, begin, position.offset, compacted=compacted, letters=letters
    )


def _letters(config: MirrorConfig, partitions: Collection[Key]) -> dict[tuple[str, str, int], set[int]]:
    """Source offsets that have a dead letter, by cluster id, topic id and partition of their source."""
    found: dict[tuple[str, str, int], set[int]] = defaultdict(set)

    def note(message: Any) -> None:
        if (origin := provenance.newest(message.headers() or ())) is not None:
            found[origin.cluster, origin.topic_id, origin.partition].add(origin.offset)

    bounds_of = LogBounds(config.target).of(partitions)
    if len(bounds_of) < len(partitions):
        raise Retryable("the leader of a partition with dead letters does not answer where its log ends")
    for key, bounds in bounds_of.items():
        read(config.target, key, bounds.end, note, times_kept=False)
    return found


def shown(offsets: Offsets) -> str:
    """A few offsets for a person."""
    text = ", ".join(map(str, offsets[:5]))
    return f"{text}, ..." if offsets.size > 5 else text
