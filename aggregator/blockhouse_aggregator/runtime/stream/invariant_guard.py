"""The driver's own check, before anything is committed or granted: would this break an invariant?

It decides nothing and repairs nothing; its owner must perform no effect of a step in which it finds something.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from blockhouse.metadata.invariants import succession_violations, violations
from blockhouse_aggregator.protocol.events import Commit, CommitSucceeded, Effect, Event, Insert, Recut
from blockhouse_aggregator.protocol.invariants import grant_violations
from blockhouse_aggregator.protocol.state import StreamState


class InvariantGuard:
    """Of one owner, who calls `check` after each step, in order."""

    def __init__(self) -> None:
        self._recut: dict[int, int] = {}
        """Tables whose block was abandoned by a decision that is not recorded yet, with the dead among its messages."""

    def check(self, event: Event, after: StreamState, effects: Iterable[Effect]) -> Sequence[str]:
        """What is wrong with the effects of the step to `after`, in words; empty when nothing is."""
        if isinstance(event, Recut):
            self._recut[event.table] = event.dead
        elif isinstance(event, CommitSucceeded):
            self._recut.clear()
        found: list[str] = []
        for effect in effects:
            if isinstance(effect, Commit):
                found += violations(effect.metadata)
                found += succession_violations(after.recorded, effect.metadata, self._recut)
            elif isinstance(effect, Insert):
                found += grant_violations(after, [effect])
        return found
