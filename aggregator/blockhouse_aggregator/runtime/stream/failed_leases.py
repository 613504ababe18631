"""Leases that fail one after another: when that is an alarm of their stream, and when it is the process's own fault.

A single failed lease is a replay and nothing else. A stream whose leases fail, without one success or a block stored in
between, stands still, and must not do so silently. Where not even the task of any stream starts (Spark's scratch folder
was removed, its context is stopped, no memory or disk is left) the next lease will not fare better: the process must
end, so that other aggregators take its streams over. Counts only; it ends nothing by itself.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from blockhouse_aggregator.protocol.events import Alarm

LEASE_FAILING = "LeaseFailing"
ALARM_EVERY = 5
"""Leases of one stream in a row whose failure is reported, then so many more, and so on."""
MOST_UNSTARTED, UNSTARTED_FOR = 10, 20.0
"""Leases of all streams in a row that end before their task has called, over at least so many seconds: a worker that is
evicted or out of memory takes one or two."""


@dataclass(slots=True)
class FailedLeases:
    """One per process."""

    _in_a_row: Counter[str] = field(default_factory=Counter)
    _blocks: Counter[str] = field(default_factory=Counter)
    _unstarted: int = 0
    _since: float = 0.0

    def started(self) -> None:
        """A task has called: Spark runs tasks."""
        self._unstarted = 0

    def succeeded(self, stream: str) -> None:
        """A lease of the stream ended in order."""
        del self._in_a_row[stream]

    def failed(self, stream: str, cause: str, blocks: int) -> Alarm | None:
        """A lease of the stream failed, when its owner had stored so many blocks; the alarm to raise, if it is time for
        one."""
        if blocks not in (0, self._blocks[stream]):  # fewer than before: another owner's, who counts from 0
            self._in_a_row[stream] = 0  # workers may die often, and the stream is loaded all the same
        self._blocks[stream] = blocks
        self._in_a_row[stream] += 1
        times = self._in_a_row[stream]
        if times % ALARM_EVERY:
            return None
        return Alarm(LEASE_FAILING, f"{times} leases in a row have failed, so that nothing is loaded: {cause}")

    def unstarted(self, now: float) -> bool:
        """A job failed before its task has called; True when the process must end. `now` in seconds of any clock."""
        if self._unstarted == 0:
            self._since = now
        self._unstarted += 1
        return self._unstarted >= MOST_UNSTARTED and now - self._since >= UNSTARTED_FOR
