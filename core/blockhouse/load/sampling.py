"""Rates from two samples of a cluster: its own answers about offsets, sizes and replicas, without any agent.

Pure. It must never make a rate out of an interval that has none: offsets that went back, another topic under the same
name and unanswered brokers are left out and named.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from blockhouse.load.model import BrokerLoad, PartitionLoad, Problem, ProblemKind, Quality, Sample
from blockhouse.placement.model import ReplicaSet, TopicPartition

SAMPLED = "sampled"
ENOUGH_RECORDS = 1000
"""A log of fewer records gives a poor estimate of the size of a record: its growth gives a better one."""
START_ROUNDS = 5
"""A partition's first offset is asked for in every fifth look: the size of its mean record changes slowly."""


@dataclass(frozen=True, slots=True)
class PartitionLook:
    """A partition that has a leader: the offset after its last record, its leader and epoch, its replicas."""

    end: int
    leader: int
    epoch: int
    replicas: ReplicaSet
    in_sync: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Snapshot:
    """One snapshot of a cluster. Offsets are of `at` (seconds since the epoch) and `clock` (seconds of a steady clock).

    `starts` has the first offset of the partitions that were asked for it. `sizes` has the bytes of each replica by
    broker, read at `sized` of the same steady clock; a broker that did not answer is in neither. `arriving` are the
    replicas that a reassignment adds. `odd` are topics whose log is no measure of its records: compacted, or tiered.
    `committed` has what consumer groups have read.
    """

    cluster_id: str
    at: float
    clock: float
    partitions: Mapping[TopicPartition, PartitionLook]
    starts: Mapping[TopicPartition, int]
    sizes: Mapping[int, Mapping[TopicPartition, float]]
    sized: Mapping[int, float]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    arriving: Mapping[TopicPartition, frozenset[int]] = field(default_factory=dict)
    odd: frozenset[str] = frozenset()
    committed: Mapping[str, Mapping[TopicPartition, int]] = field(default_factory=dict)
    problems: tuple[Problem, ...] = ()


@dataclass(slots=True)
class _Traffic:
    """What a broker was found to send and receive, bytes/s."""

    tx: float = 0.0
    rx: float = 0.0
    moved_out: float = 0.0
    moved_in: float = 0.0


class Sampler:
    """Makes a sample of each look and the one before. Keeps one look and the size of each partition's mean record."""

    def __init__(self) -> None:
        self._before: Snapshot | None = None
        self._starts: dict[TopicPartition, int] = {}
        self._record_bytes: dict[TopicPartition, float] = {}
        self._measured: set[TopicPartition] = set()  # whose mean record was looked for, found or not
        self._round = 0

    def ask_start(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Those of `partitions` whose first offset the next look should read."""
        phase = self._round % START_ROUNDS
        return [
            key for number, key in enumerate(partitions) if number % START_ROUNDS == phase or key not in self._measured
        ]

    def add(self, now: Snapshot) -> Sample | None:
        """The sample of the time between this snapshot and the one before; None for the first one.

        A snapshot of another cluster, or not later than the one before, begins afresh.
        """
        before, self._before = self._before, now
        self._round += 1
        if before is not None and (before.cluster_id != now.cluster_id or now.clock <= before.clock):
            before = None
            self._starts.clear()
            self._record_bytes.clear()
            self._measured.clear()
        self._learn(before, now)
        if before is None:
            return None
        interval = _Interval(before, now, self._starts, self._record_bytes)
        return interval.sample()

    def _learn(self, before: Snapshot | None, now: Snapshot) -> None:
        """Note where logs start and how large their mean record is; forget partitions that are gone.

        Sizes are read later than offsets: what was written meanwhile, at the rate of the interval, is in the size too.
        So a partition's mean is known from its second look on.
        """
        for gone in self._starts.keys() - now.partitions.keys():
            self._starts.pop(gone)
            self._record_bytes.pop(gone, None)
            self._measured.discard(gone)
        self._starts.update(now.starts)
        for key, start in now.starts.items():
            look, earlier = now.partitions.get(key), before.partitions.get(key) if before else None
            if look is None or before is None or earlier is None:
                continue
            self._measured.add(key)
            size = now.sizes.get(look.leader, {}).get(key)
            rate = max(look.end - earlier.end, 0) / (now.clock - before.clock)
            records = look.end + rate * (now.sized.get(look.leader, now.clock) - now.clock) - start
            if size and records > 0:
                self._record_bytes[key] = size / records


class _Interval:
    def __init__(
        self,
        before: Snapshot,
        now: Snapshot,
        starts: Mapping[TopicPartition, int],
        record_bytes: Mapping[TopicPartition, float],
    ) -> None:
        self._before, self._now = before, now
        self._starts, self._record_bytes = starts, record_bytes
        self._seconds = now.clock - before.clock
        self._reset: Counter[str] = Counter()
        self._unsized: Counter[int] = Counter()

    def sample(self) -> Sample:
        partitions: dict[TopicPartition, PartitionLoad] = {}
        for key, look in self._now.partitions.items():
            load = self._partition(key, look)
            if load is not None:
                partitions[key] = load
        return Sample(
            cluster_id=self._now.cluster_id,
            source=SAMPLED,
            at=self._now.at,
            window=self._seconds,
            partitions=partitions,
            brokers=self._brokers(partitions),
            problems=self._now.problems + tuple(self._problems()),
        )

    def _partition(self, key: TopicPartition, look: PartitionLook) -> PartitionLoad | None:
        before = self._before.partitions.get(key)
        if before is None:  # new, or unanswered in the look before: the next sample has it
            return None
        ids = self._before.topic_ids, self._now.topic_ids
        if look.end < before.end or ids[0].get(key.topic) != ids[1].get(key.topic):
            self._reset[key.topic] += 1
            return None
        records = look.end - before.end
        if records == 0:
            return PartitionLoad(0.0, 0.0)
        found = self._bytes(key, look, records)
        if found is None:
            self._unsized[look.leader] += 1
            return None
        bytes, quality = found
        if look.epoch != before.epoch:  # an unclean election may have cut records off that others replaced since
            quality = Quality.ESTIMATED
        return PartitionLoad(bytes, records / self._seconds, quality)

    def _bytes(self, key: TopicPartition, look: PartitionLook, records: int) -> tuple[float, Quality] | None:
        """Bytes/s of `records` new ones: by the log's mean record, or by its growth where that fits better."""
        odd = key.topic in self._now.odd
        by_mean = self._record_bytes.get(key)
        kept = look.end - self._starts.get(key, look.end)
        if by_mean is not None and kept >= ENOUGH_RECORDS and not odd:
            return records / self._seconds * by_mean, Quality.MEASURED
        growth = self._growth(key, look.leader)
        if growth:
            return growth, Quality.ESTIMATED if odd else Quality.MEASURED
        return None if by_mean is None else (records / self._seconds * by_mean, Quality.ESTIMATED)

    def _growth(self, key: TopicPartition, broker: int, *, new: bool = False) -> float | None:
        """Bytes/s by which a replica grew, 0 if it shrank; None if unknown. A `new` one began with nothing."""
        sized = self._before.sized.get(broker), self._now.sized.get(broker)
        if sized[0] is None or sized[1] is None or sized[1] <= sized[0]:
            return None
        now, before = self._now.sizes[broker].get(key), self._before.sizes[broker].get(key, 0.0 if new else None)
        return None if now is None or before is None else max(now - before, 0.0) / (sized[1] - sized[0])

    def _brokers(self, partitions: Mapping[TopicPartition, PartitionLoad]) -> dict[int, BrokerLoad]:
        traffic: dict[int, _Traffic] = defaultdict(_Traffic)
        for key, load in partitions.items():
            look = self._now.partitions[key]
            arriving = self._now.arriving.get(key, frozenset())
            for broker in look.replicas:
                if broker not in arriving:
                    traffic[broker].rx += load.bytes
                    if broker != look.leader and broker in look.in_sync:
                        traffic[look.leader].tx += load.bytes
        self._add_moves(traffic)
        self._add_consumers(traffic)
        answered = self._now.sized.keys() & self._before.sized.keys()
        return {
            id: BrokerLoad(found.tx, found.rx, found.moved_out, found.moved_in, Quality.ESTIMATED)
            for id, found in ((id, traffic[id]) for id in sorted(answered))
        }

    def _add_moves(self, traffic: Mapping[int, _Traffic]) -> None:
        for key, arriving in self._now.arriving.items():
            look = self._now.partitions.get(key)
            for broker in arriving:
                growth = self._growth(key, broker, new=True) or 0.0
                traffic[broker].moved_in += growth
                traffic[broker].rx += growth
                if look is not None:
                    traffic[look.leader].moved_out += growth
                    traffic[look.leader].tx += growth

    def _add_consumers(self, traffic: Mapping[int, _Traffic]) -> None:
        for group, committed in self._now.committed.items():
            earlier = self._before.committed.get(group, {})
            for key, offset in committed.items():
                look, before = self._now.partitions.get(key), earlier.get(key)
                read = offset - before if before is not None else 0
                if look is not None and read > 0:
                    traffic[look.leader].tx += read * self._record_bytes.get(key, 0.0) / self._seconds

    def _problems(self) -> Iterable[Problem]:
        for topic, count in sorted(self._reset.items()):
            text = f"offsets of {count} partitions went back, or the topic is another one: this interval has no rate"
            yield Problem(ProblemKind.RESET, f"topic {topic}", text)
        for broker, count in sorted(self._unsized.items()):
            text = f"sizes unknown: {count} partitions it leads have no rate in bytes yet"
            yield Problem(ProblemKind.UNAVAILABLE, f"broker {broker}", text)
