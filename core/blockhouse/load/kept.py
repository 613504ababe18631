"""A history of load that survives its process: what changed is given out, and taken over by the next one. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable

import numpy as np

from blockhouse.load.columns import Column
from blockhouse.load.figures import UNKNOWN, Codes, decoded
from blockhouse.load.history import FIVE_MINUTES, HOUR, HOURS, P95, LoadHistory
from blockhouse.placement.model import TopicPartition


class KeptHistory(LoadHistory):
    """As `LoadHistory`. `changed` gives out, `restore` takes over."""

    _given_span = 0
    """The five minutes that were not over when they were given out."""
    _given_hour = -1
    """The newest hour that was given out."""

    def changed(self) -> list[Column]:
        """The five minutes now, and what was closed since the last call."""
        now = self._recent.span
        if now < 0 or self.cluster_id is None:
            return []
        spans = [span for span in self._recent.spans if span >= self._given_span]
        columns = [self._column(FIVE_MINUTES, span, self._recent.codes(span)) for span in [*spans, now]]
        hours = sorted(hour for hour in self._hour_slots.tolist() if hour > self._given_hour)
        columns += [self._column(HOUR, hour, self._hourly[:, hour % HOURS]) for hour in hours]
        self._given_span, self._given_hour = now, max([self._given_hour, *hours])
        return [column for column in columns if column.keys]

    def restore(self, columns: Collection[Column], cluster: str, now: float) -> int:
        """Take over columns of this cluster, before the first sample; how many there were. Left out are those of other
        clusters, those of the future (clocks differ), and those that newer ones have replaced."""
        mine = [each for each in columns if each.cluster == cluster and each.slot * each.span <= now]
        if not mine:
            return 0
        newest = min(max((each.slot + 1) * each.span for each in mine) - 1, int(now)) // FIVE_MINUTES
        self.cluster_id, self._recent.span = cluster, newest
        taken = [each for each in mine if self._fits(each)]
        for each in sorted(taken, key=lambda each: each.at):
            self._take(each)
        self._given_span, self._given_hour = newest, int(self._hour_slots.max())
        return len(taken)

    def same_hours(self, keys: Iterable[TopicPartition], at: float, days: int = 7) -> dict[TopicPartition, float]:
        """The highest p95 in bytes/s of the hour of `at` on the last `days` days, of partitions that have one."""
        hour, known = int(at // HOUR), [key for key in keys if key in self._rows]
        slots = [hour - 24 * day for day in range(1, days + 1)]
        columns = [slot % HOURS for slot in slots if self._hour_slots[slot % HOURS] == slot]
        if not known or not columns:
            return {}
        rows = np.fromiter((self._rows[key] for key in known), np.int64, len(known))
        codes = self._hourly[rows][:, columns, P95].max(axis=1)  # UNKNOWN is the lowest of them
        found = decoded(codes)
        return {key: float(found[n]) for n, key in enumerate(known) if codes[n] != UNKNOWN}

    def _column(self, span: int, slot: int, codes: Codes) -> Column:
        known = (codes != UNKNOWN).any(axis=1)
        rows = [(key, row) for key, row in self._rows.items() if known[row]]
        chosen = [row for _, row in rows]
        at = float(self._seen[chosen].max(initial=0.0))
        moment = min(at, float((slot + 1) * span))
        return Column(self.cluster_id or "", span, slot, moment, tuple(key for key, _ in rows), codes[chosen].copy())

    def _fits(self, column: Column) -> bool:
        if column.span == FIVE_MINUTES:
            return column.slot * FIVE_MINUTES >= self._recent.reach
        return column.slot > self._recent.span * FIVE_MINUTES // HOUR - HOURS

    def _take(self, column: Column) -> None:
        chosen = [n for n, key in enumerate(column.keys) if self._interesting(key.topic)]
        rows = np.array(self._rows_of([column.keys[n] for n in chosen]), np.int64)
        there = rows >= 0
        rows, codes = rows[there], column.codes[chosen][there]
        if column.span == HOUR:
            self._hourly[rows, column.slot % HOURS] = codes
            self._hour_slots[column.slot % HOURS] = column.slot
        else:
            self._recent.restore(column.slot, rows, codes)
        self._seen[rows] = np.maximum(self._seen[rows], column.at)
        self._restored[rows] = True
