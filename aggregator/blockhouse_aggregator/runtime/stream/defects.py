"""What this process remembers of its own defects, over owners and epochs: violated invariants and internal errors.

A defect must be loud and must not repeat without end: after the third violation at one committed position the stream
stops, after five internal errors in ten minutes the process ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from blockhouse.streams import StreamId
from blockhouse_aggregator.protocol.takeover import Stop
from blockhouse_aggregator.runtime.clock import loop_time

INVARIANT_VIOLATED, INTERNAL_ERROR = "InvariantViolated", "InternalError"
MOST_VIOLATIONS = 3
MOST_ERRORS, ERROR_WINDOW = 5, 600.0
"""Internal errors of all streams within so many seconds, after which only a restart is left to try."""


@dataclass(slots=True)
class Defects:
    """One per process. `too_many` is called when the process must end."""

    too_many: Callable[[], None]
    _violations: dict[StreamId, tuple[int, int]] = field(default_factory=dict)
    _errors: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_ERRORS))

    def violated(self, stream: StreamId, position: int, found: Sequence[str]) -> str:
        """Count a violation at a committed position; returns the alarm's text. A violation at another position means
        that the stream has moved since: it counts from one again."""
        before, count = self._violations.get(stream, (position, 0))
        count = count + 1 if before == position else 1
        self._violations[stream] = (position, count)
        times = f"{count} of {MOST_VIOLATIONS} at position {position}"
        return f"nothing is committed or inserted ({times}): {'; '.join(found)}"

    def stop(self, stream: StreamId, position: int) -> Stop | None:
        """Why the stream must not be consumed from this committed position by this process; None when it may be."""
        before, count = self._violations.get(stream, (position, 0))
        if before != position or count < MOST_VIOLATIONS:
            return None
        text = (
            f"{count} times what followed position {position} would have broken an invariant: this aggregator has a"
            " defect; report its log lines `alarm`, then restart it, or run another version, to try again"
        )
        return Stop(INVARIANT_VIOLATED, text)

    def internal_error(self) -> None:
        """Count an error that our own code raised."""
        now = loop_time()
        self._errors.append(now)
        if len(self._errors) == MOST_ERRORS and now - self._errors[0] <= ERROR_WINDOW:
            self.too_many()
