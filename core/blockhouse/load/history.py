"""What a cluster's load has been: ten-second means of five minutes, five-minute means of two hours, and each hour of
seven days, in bounded memory.

Pure; time comes with the samples. A partition takes 1.6 kB however many samples there are: rates are kept as 16-bit
logarithms, 0.04 % apart. It must never keep what no one asked for: `interesting` chooses, and `capacity` is the end.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from blockhouse.errors import Permanent
from blockhouse.load import figures
from blockhouse.load.figures import UNKNOWN, Statistic, Values, coded, decoded
from blockhouse.load.means import BYTES, MESSAGES, Means
from blockhouse.load.model import PartitionLoad, Quality, Rate, RateSource, Sample
from blockhouse.placement.model import TopicPartition

TEN_SECONDS, FIVE_MINUTES, HOUR = 10, 300, 3600
LATEST, RECENT, HOURS = 30, 24, 168
"""Ten-second means kept (five minutes), five-minute means kept (two hours), and hours kept (seven days)."""
CAPACITY = 100_000
"""Partitions and topics kept at most; 160 MB when all are there."""
CHUNK = 10_000
"""Rows reduced at once, so that a week of many partitions is never decoded at the same time."""
WHOLE_TOPIC = -1
"""The partition number under which a topic's own rate is kept."""
MEAN, P95, MAX, MESSAGES_MEAN = 0, 1, 2, 3


@dataclass(frozen=True, slots=True)
class Window:
    """The part of history that a rate is computed from: its last `seconds`, reduced by `statistic`."""

    seconds: float = 3 * HOUR
    statistic: Statistic = Statistic.P95


class LoadHistory:
    """History of one cluster. Not safe for use from several threads at the same time."""

    def __init__(
        self,
        *,
        capacity: int = CAPACITY,
        interesting: Callable[[str], bool] = lambda _: True,
    ) -> None:
        self.cluster_id: str | None = None
        self.dropped = 0
        self._capacity, self._interesting = capacity, interesting
        self._rows: dict[TopicPartition, int] = {}
        self._free: list[int] = []
        self._latest, self._recent = Means(TEN_SECONDS, LATEST), Means(FIVE_MINUTES, RECENT)
        self._hourly = np.zeros((0, HOURS, 4), np.uint16)
        self._hour_slots = np.full(HOURS, -1, np.int64)
        self._seen = np.zeros(0)  # by row: the moment of its last sample
        self._estimated = np.zeros(0, bool)
        self._restored = np.zeros(0, bool)  # by row: no sample of this process yet, only what a former one kept

    def __len__(self) -> int:
        """Partitions kept."""
        return sum(key.partition != WHOLE_TOPIC for key in self._rows)

    @property
    def nbytes(self) -> int:
        """Bytes of the figures kept, without the names."""
        arrays = (self._latest, self._recent, self._hourly, self._seen, self._estimated)
        return sum(array.nbytes for array in arrays)

    def add(self, sample: Sample) -> None:
        """Keep a sample; one that is older than what was added is left out.

        Raises Permanent for a sample of another cluster: rates under equal names would be mixed up.
        """
        if self.cluster_id not in (None, sample.cluster_id):
            raise Permanent(
                f"load of Kafka cluster {sample.cluster_id} cannot be added to the history of {self.cluster_id}: "
                "the address leads to another cluster now; begin a new history",
                reason="OtherCluster",
            )
        self.cluster_id = sample.cluster_id
        if sample.at // TEN_SECONDS < self._latest.span or sample.at // FIVE_MINUTES < self._recent.span:
            return
        self._advance(sample.at)
        found = [(key, load) for key, load in sample.partitions.items() if self._interesting(key.topic)]
        found += [
            (TopicPartition(topic, WHOLE_TOPIC), load)
            for topic, load in sample.topics.items()
            if self._interesting(topic)
        ]
        self._add_rows(found, sample.at)

    def forget(self, partitions: Iterable[TopicPartition]) -> None:
        """Free what is kept of these; unknown ones are ignored."""
        for key in partitions:
            row = self._rows.pop(key, None)
            if row is not None:
                self._hourly[row] = UNKNOWN
                self._latest.forget(row)
                self._recent.forget(row)
                self._free.append(row)

    def rates(
        self,
        partitions: Iterable[TopicPartition],
        window: Window,
        now: float,
        default: float,
        counts: Mapping[str, int] | None = None,
    ) -> dict[TopicPartition, Rate]:
        """The rate of each partition: its own; else its topic's, shared out; else `default` bytes/s.

        `counts` are the numbers of partitions of topics, for those whose source knows no more than the topic's rate.
        A topic without a rate of its own lends the mean of its known partitions.
        """
        asked = list(partitions)
        known = {key: self._rows[key] for key in asked if key in self._rows}
        own = self._reduced(known, window, now)
        topics = {key.topic for key in asked if key not in own}
        shared = self._topic_rates(topics, window, now, counts or {}) if topics else {}
        nothing = Rate(default, None, RateSource.DEFAULT, None, Quality.ESTIMATED)
        return {key: own.get(key) or shared.get(key.topic) or nothing for key in asked}

    def rate(self, key: TopicPartition, window: Window, now: float, default: float) -> Rate:
        """As `rates`, of one partition."""
        return self.rates([key], window, now, default)[key]

    def _advance(self, at: float) -> None:
        """What was gathered before the spans of that moment becomes their means, full hours an hour."""
        self._latest.advance(at)
        before = self._recent.span
        self._recent.advance(at)
        if before >= 0:
            for hour in range(before * FIVE_MINUTES // HOUR, int(at // HOUR))[-HOURS:]:
                self._close_hour(hour)

    def _close_hour(self, hour: int) -> None:
        """Reduce the hour's five-minute means; an hour without any stays unknown."""
        column = hour % HOURS
        self._hour_slots[column] = hour
        self._hourly[:, column] = UNKNOWN
        columns = self._recent.where(hour * HOUR, (hour + 1) * HOUR)
        if not columns.any():
            return
        values = self._recent.of(columns)
        known = np.isfinite(values[:, :, BYTES]).any(axis=1)
        bytes, messages = values[known, :, BYTES], values[known, :, MESSAGES]
        if not len(bytes):
            return
        reduced = np.stack(
            [
                np.nanmean(bytes, axis=1),
                np.nanpercentile(bytes, 95, axis=1),
                np.nanmax(bytes, axis=1),
                figures.mean(messages),
            ],
            axis=1,
        )
        self._hourly[known, column] = coded(reduced)

    def _add_rows(self, found: list[tuple[TopicPartition, PartitionLoad]], at: float) -> None:
        rows = self._rows_of([key for key, _ in found])
        for row, (_, load) in zip(rows, found, strict=True):
            if row < 0 or not figures.plausible(load.bytes):
                continue
            for means in (self._latest, self._recent):
                means.add(row, BYTES, load.bytes)
                if load.messages is not None and figures.plausible(load.messages):
                    means.add(row, MESSAGES, load.messages)
            self._seen[row] = at
            self._restored[row] = False
            self._estimated[row] = load.quality is Quality.ESTIMATED

    def _rows_of(self, keys: list[TopicPartition]) -> list[int]:
        """Rows of these keys, new ones included; -1 for those beyond the capacity, which are counted."""
        missing = [key for key in keys if key not in self._rows]
        room = max(self._capacity - len(self._rows), 0)
        for key in missing[:room]:
            if not self._free:
                self._grow()
            self._rows[key] = self._free.pop()
        self.dropped = max(len(missing) - room, 0)
        return [self._rows.get(key, -1) for key in keys]

    def _grow(self) -> None:
        before = len(self._seen)
        after = min(max(2 * before, 256), self._capacity)
        for name in ("_hourly", "_seen", "_estimated", "_restored"):
            old = getattr(self, name)
            new = np.zeros((after, *old.shape[1:]), old.dtype)
            new[:before] = old
            setattr(self, name, new)
        self._latest.grow(after)
        self._recent.grow(after)
        self._free.extend(reversed(range(before, after)))

    def _reduced(
        self, rows: Mapping[TopicPartition, int], window: Window, now: float, share: float = 1.0
    ) -> dict[TopicPartition, Rate]:
        """Rates of these rows where the window has any figure."""
        if not rows:
            return {}
        keys, index = list(rows), np.fromiter(rows.values(), np.int64, len(rows))
        parts = [self._window(index[n : n + CHUNK], window, now) for n in range(0, len(index), CHUNK)]
        bytes, messages = (np.concatenate(part) for part in zip(*parts, strict=True))
        return {
            key: Rate(
                float(bytes[n]) * share,
                float(messages[n]) * share if math.isfinite(messages[n]) else None,
                RateSource.HISTORY if self._restored[index[n]] else RateSource.PARTITION,
                max(now - float(self._seen[index[n]]), 0.0),
                Quality.ESTIMATED if self._estimated[index[n]] else Quality.MEASURED,
            )
            for n, key in enumerate(keys)
            if math.isfinite(bytes[n])
        }

    def _window(self, index: NDArray[np.int64], window: Window, now: float) -> tuple[Values, Values]:
        """Bytes/s and messages/s of rows, by the finest means that reach back so far: ten seconds, else five minutes,
        and whole hours where they begin."""
        begin = now - window.seconds
        if window.seconds < FIVE_MINUTES:
            values = self._latest.with_current(self._latest.where(begin), index)
            weights = np.ones(values.shape[1])
            found = [figures.reduced(values[:, :, kind], weights, window.statistic) for kind in (BYTES, MESSAGES)]
            return found[0], found[1]
        fresh, hours = self._recent.where(max(begin, self._recent.reach)), self._hour_slots
        old = (hours >= 0) & ((hours + 1) * HOUR > begin) & ((hours + 1) * HOUR <= self._recent.oldest(fresh))
        recent = self._recent.with_current(fresh, index)
        chosen = {Statistic.MEAN: MEAN, Statistic.P95: P95, Statistic.MAX: MAX}[window.statistic]
        hourly, hourly_messages = (decoded(self._hourly[index][:, old, kind]) for kind in (chosen, MESSAGES_MEAN))
        weights = np.concatenate([np.ones(recent.shape[1]), np.full(hourly.shape[1], HOUR / FIVE_MINUTES)])
        values = np.concatenate([recent[:, :, BYTES], hourly], axis=1)
        messages = np.concatenate([recent[:, :, MESSAGES], hourly_messages], axis=1)
        return figures.reduced(values, weights, window.statistic), figures.reduced(messages, weights, window.statistic)

    def _topic_rates(
        self, topics: Iterable[str], window: Window, now: float, counts: Mapping[str, int]
    ) -> dict[str, Rate]:
        members: dict[str, list[TopicPartition]] = {topic: [] for topic in topics}
        for key in self._rows:
            if key.topic in members and key.partition != WHOLE_TOPIC:
                members[key.topic].append(key)
        rates: dict[str, Rate] = {}
        for topic, keys in members.items():
            whole = TopicPartition(topic, WHOLE_TOPIC)
            if whole in self._rows and counts.get(topic):
                found = self._reduced({whole: self._rows[whole]}, window, now, 1 / counts[topic])
                known = list(found.values())
            else:
                known = list(self._reduced({key: self._rows[key] for key in keys}, window, now).values())
            if known:
                rates[topic] = _mean_rate(known)
        return rates


def _mean_rate(known: list[Rate]) -> Rate:
    messages = [rate.messages for rate in known if rate.messages is not None]
    return Rate(
        sum(rate.bytes for rate in known) / len(known),
        sum(messages) / len(messages) if messages else None,
        RateSource.TOPIC,
        max(rate.age for rate in known if rate.age is not None),
        Quality.ESTIMATED,
    )
