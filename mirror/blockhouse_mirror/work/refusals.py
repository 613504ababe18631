"""Which records may be those that ended a producer: the client does not name them, and most records report nothing."""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from confluent_kafka import KafkaError

from blockhouse_mirror.work.forwarding import CAREFUL
from blockhouse_mirror.work.link import Link
from blockhouse_mirror.work.target import CONSEQUENCES

Refusal = tuple[Link, str, int]
"""A partition, what is known, and the source offset below which its records are to be sent one at a time."""


def of_batch(failures: Sequence[tuple[Link, KafkaError]], links: Iterable[Link], broken: str) -> Iterator[Refusal]:
    """Where to look for the record at fault, by what the last records of runs reported (`failures`, in order) and why
    the producer ended."""
    refused: dict[Link, tuple[KafkaError, int]] = {}
    reported: Counter[Link] = Counter()
    for link, error in failures:
        reported[link] += 1
        if error.code() not in CONSEQUENCES:
            refused[link] = error, reported[link]
    for link, (error, count) in refused.items():
        # The batch may reach into the next run, whose last record is of another one and reports a consequence.
        until = min(link.progress.last_in_flight(count) + CAREFUL, link.progress.read)
        yield link, f"offset {link.progress.position}: {error.str()}", until
    if not refused:
        sys.stderr.write(f"mirror task: the producer ends: {broken}\n")
        yield from _of_silent_batch(links, broken)


def _of_silent_batch(links: Iterable[Link], broken: str) -> Iterator[Refusal]:
    """If the producer ended of a batch, it lies before the last record of the oldest run in flight of a partition."""
    for link in links:
        progress = link.progress
        if link.ending or progress.settled or (last := progress.last_in_flight(0)) == progress.position:
            continue
        yield link, f"an offset from {progress.position} on, or a record of another partition: {broken}", last
