"""Streams of a shard that none of the aggregators that answered owns. Pure: it opens no connection.

A stream without an owner is on no aggregator's page: only the number of the topic's partitions shows that it is
missing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blockhouse.contract.aggregator import StatusPage


@dataclass(frozen=True, slots=True)
class Unowned:
    """A stream, as cluster/topic/partition, and whose it is."""

    pipeline: str
    shard: str
    stream: str


def unowned(pages: Sequence[StatusPage]) -> list[Unowned]:
    """By pipeline, shard and stream. Another aggregator of the shard may own one, if not all of them were asked."""
    counts: dict[tuple[str, str, str], int] = {}
    for page in pages:
        for topic, partitions in page.partitions.items():
            key = (page.pipeline, page.shard, topic)
            counts[key] = max(partitions, counts.get(key, 0))
    owned = {(page.pipeline, page.shard, stream.stream) for page in pages for stream in page.streams}
    return [
        Unowned(pipeline, shard, f"{topic}/{number}")
        for (pipeline, shard, topic), partitions in sorted(counts.items())
        for number in range(partitions)
        if (pipeline, shard, f"{topic}/{number}") not in owned
    ]
