"""What an owner reads next: replays first, then new messages, with lagging tables taken up on the way or in their turn.

Any choice is safe (`sealing` checks the outcome); this one keeps one slow table from delaying the others.
"""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse.metadata.model import InFlight
from blockhouse_aggregator.protocol.state import Stage, StreamState, TableState


@dataclass(frozen=True, slots=True)
class ScanRequest:
    """Read from `start`; below P only the `resume` tables from their cursors, from P on every table but `exclude`.

    `stop` (None: open) bounds a pure catch-up scan: it never passes P, so that nothing new is taken with it.
    """

    start: int
    position: int
    resume: tuple[tuple[int, int], ...]
    exclude: frozenset[int]
    stop: int | None = None


@dataclass(frozen=True, slots=True)
class ReplayRequest:
    """Rebuild these in-flight blocks in one pass; their ranges overlap."""

    blocks: tuple[tuple[int, InFlight], ...]


def replays(state: StreamState, ready: frozenset[int]) -> ReplayRequest | None:
    """The inherited or failed blocks to rebuild next, of the tables in `ready` (not held back by a retry delay).

    None before the owner is confirmed: a block that another owner has made since would not be fresh for it any more.
    """
    if not state.confirmed:
        return None
    waiting = sorted(
        ((t.table, t.block.intent) for t in state.in_flight if t.block and t.block.stage is Stage.REPLAY),
        key=lambda pair: (pair[1].begin, pair[0]),
    )
    group: list[tuple[int, InFlight]] = []
    last = -1
    for table, intent in waiting:
        if table not in ready:
            continue
        if group and intent.begin > last:
            break
        group.append((table, intent))
        last = max(last, intent.end)
    return ReplayRequest(tuple(group)) if group else None


def lagging(state: StreamState, skipped: frozenset[int]) -> tuple[TableState, ...]:
    """Tables that could continue from their cursor now."""
    return tuple(t for t in state.tables if t.block is None and t.cursor is not None and t.table not in skipped)


def scan(state: StreamState, *, skipped: frozenset[int], near: int, catch_up: bool) -> ScanRequest:
    """The next scan. Tables at most `near` offsets behind P ride along with the new messages. Those further behind are
    read in scans of their own (`catch_up=True`), which the caller alternates with the others."""
    behind = lagging(state, skipped)
    far = [t for t in behind if state.position - _cursor(t) > near]
    chosen = far if catch_up and far else [t for t in behind if t not in far]
    resume = tuple((t.table, _cursor(t)) for t in chosen)
    taken = {table for table, _ in resume}
    exclude = (frozenset(t.table for t in state.tables) | skipped) - taken
    start = min([state.position, *(cursor for _, cursor in resume)])
    stop = state.position if catch_up and far else None
    return ScanRequest(start, state.position, resume, exclude, stop)


def has_far(state: StreamState, *, skipped: frozenset[int], near: int) -> bool:
    """True when some table needs a catch-up scan of its own."""
    return any(state.position - _cursor(t) > near for t in lagging(state, skipped))


def _cursor(table: TableState) -> int:
    assert table.cursor is not None
    return table.cursor
