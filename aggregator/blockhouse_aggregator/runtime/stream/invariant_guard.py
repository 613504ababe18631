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
        self._recut: dict[int, Recut] = {}
        """By table: its block was abandoned by a decision that is not recorded yet."""

    def check(self, event: Event, after: StreamState, effects: Iterable[Effect]) -> Sequence[str]:
        """What is wrong with the effects of the step to `after`, in words; empty when nothing is."""
        if isinstance(event, Recut):
            self._recut[event.table] = event
        elif isinstance(event, CommitSucceeded):
            # One that was on its way when the block was abandoned has the block still.
            self._recut = {table: recut for table, recut in self._recut.items() if _holds(after, recut)}
        dead = {table: recut.dead for table, recut in self._recut.items()}
        found: list[str] = []
        for effect in effects:
            if isinstance(effect, Commit):
                found += violations(effect.metadata)
                found += succession_violations(after.recorded, effect.metadata, dead)
            elif isinstance(effect, Insert):
                found += grant_violations(after, [effect])
        return found


def _holds(state: StreamState, recut: Recut) -> bool:
    """Whether the block is in flight in what is recorded."""
    entries = state.recorded.tables if state.recorded is not None else ()
    blocks = [entry.in_flight for entry in entries if entry.table == recut.table]
    return any(block is not None and (block.begin, block.end) == (recut.begin, recut.end) for block in blocks)
