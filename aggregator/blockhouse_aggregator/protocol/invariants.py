"""I1 of `docs/protocol.md` as a check of the state; the invariants of committed metadata are in
`blockhouse.metadata.invariants`. It returns the violations it finds, in words; nothing here changes anything."""

from __future__ import annotations

from collections.abc import Iterable

from blockhouse.metadata.model import InFlight
from blockhouse_aggregator.protocol.events import Insert
from blockhouse_aggregator.protocol.state import StreamState


def grant_violations(state: StreamState, grants: Iterable[Insert]) -> list[str]:
    """I1: every granted insert is named, exactly, by the metadata known to be committed."""
    recorded: dict[int, InFlight] = {}
    if state.recorded is not None:
        recorded = {e.table: e.in_flight for e in state.recorded.tables if e.in_flight is not None}
    return [
        f"I1: table {g.table}: insert of [{g.intent.begin}, {g.intent.end}] without a committed intent"
        for g in grants
        if recorded.get(g.table) != g.intent
    ]
