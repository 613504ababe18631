"""Counts over the lives of all aggregators, also of those that were killed.

Taken from `/metrics`, not from `/status`: the counters there live as long as the process, while those of the status
page begin at zero whenever a stream changes hands. Pure.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from prometheus_client.parser import text_string_to_metric_families

COUNTERS = ("rows", "blocks", "replays", "deduplicated", "provenance_decisions", "surplus_rows", "rejoins")
"""Counters that matter here, by their names without `blockhouse_` and `_total`."""


def read_counters(exposition: str) -> dict[str, int]:
    """Sums over all labels of COUNTERS in a page of Prometheus' text format."""
    sums = dict.fromkeys(COUNTERS, 0)
    by_metric = {f"blockhouse_{name}_total": name for name in COUNTERS}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            if sample.name in by_metric:
                sums[by_metric[sample.name]] += int(sample.value)
    return sums


class Tally:
    """The last counters of every process; `pid` distinguishes the lives of one replica's aggregator."""

    def __init__(self) -> None:
        self._lives: dict[tuple[str, int], Mapping[str, int]] = {}

    def note(self, replica: str, pid: int, counters: Mapping[str, int]) -> None:
        """Counters only grow: an answer that was overtaken by a newer one changes nothing."""
        known = self._lives.get((replica, pid), {})
        self._lives[replica, pid] = {name: max(count, known.get(name, 0)) for name, count in counters.items()}

    def total(self, counter: str, replica: str | None = None) -> int:
        """Over all lives, of one replica's aggregators or of all."""
        return self.totals(replica)[counter]

    def totals(self, replica: str | None = None) -> Counter[str]:
        """`total` of every counter; the difference of two is what was counted in between, also by who lived before."""
        lives = list(self._lives.items())  # at once: others may note a new life meanwhile
        return sum((Counter(counters) for (owner, _), counters in lives if replica in (None, owner)), Counter())
