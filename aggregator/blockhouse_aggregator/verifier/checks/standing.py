"""A stream against its log: does it stand still while there is work, and can its position be true? Pure.

Ages are measured by the verifier's own steady clock from what it saw itself: no other clock is believed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from blockhouse.metadata.ebay import EbayMetadata
from blockhouse.metadata.reading import Reading
from blockhouse_aggregator.verifier.anomaly import Finding, Kind
from blockhouse_aggregator.verifier.checks.sequence import Known

_SURE = 2
"""Looks in a row at which a position lies beyond the log: a new leader may know less of the end for a moment."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """First offset of a stream's log, its last stable offset, and the id of its topic (empty: not known)."""

    begin: int
    end: int
    topic_id: str = ""


@dataclass(slots=True)
class Standing:
    """What was seen of one stream at earlier looks. Times are of a steady clock, in seconds."""

    position: int = -1
    moved_at: float = 0.0
    beyond: int = 0
    tables: dict[str, tuple[int, float]] = field(default_factory=dict)


def look(standing: Standing, known: Known, bounds: Bounds, now: float, stalled_after: float) -> list[Finding]:
    """What is wrong with the stream as it stands now; `standing` is brought up to date. A finding that is not returned
    any more is over."""
    position = known.position if isinstance(known, Reading) else known.committed_offset
    if position is None:
        return []
    recorded = known.topic_id if isinstance(known, Reading) else ""
    recreated = bool(recorded and bounds.topic_id and recorded != bounds.topic_id)
    found: list[Finding] = []
    standing.beyond = standing.beyond + 1 if position > bounds.end and not recreated else 0
    if standing.beyond >= _SURE:
        text = f"position {position} is beyond the end {bounds.end} of the log: it was truncated, or never read from"
        found.append(Finding(Kind.BEYOND_END, text, None, bounds.end, position - 1))
    waiting = bounds.end > (bounds.begin if recreated else position)
    if position != standing.position or not waiting:
        standing.position, standing.moved_at = position, now
    elif now - standing.moved_at >= stalled_after:
        text = (
            f"nothing was scanned beyond {position} for {now - standing.moved_at:.0f} s; the log ends at {bounds.end}"
        )
        if recreated:
            text = f"its topic was created again, and nobody reads the new one, which ends at {bounds.end}"
        found.append(Finding(Kind.STALLED, text, None, 0 if recreated else position, bounds.end - 1))
    found += _tables(standing, known, now, stalled_after)
    return found


def _tables(standing: Standing, known: Known, now: float, stalled_after: float) -> list[Finding]:
    seen: dict[str, tuple[int, float]] = {}
    found: list[Finding] = []
    for table, begin, end, what in _open(known):
        before = standing.tables.get(table)
        since = before[1] if before is not None and before[0] == begin else now
        seen[table] = (begin, since)
        if now - since >= stalled_after:
            found.append(Finding(Kind.STALLED, f"{what} for {now - since:.0f} s", table, begin, end))
    standing.tables = seen
    return found


def _open(known: Known) -> Iterator[tuple[str, int, int, str]]:
    """(table, first offset that is open, last one, in words) of every table that is in flight or lags."""
    if isinstance(known, EbayMetadata):
        for name, entry in known.tables.items():
            if entry.in_flight:
                yield name, entry.begin, entry.end, f"block [{entry.begin}, {entry.end}] is in flight"
        return
    for table, (begin, end, messages, _, _, cursor, pending) in known.tables.items():
        if begin >= 0:
            text = f"block [{begin}, {end}] of {messages} messages is in flight and not acknowledged"
            yield str(table), begin, end, text
        else:
            text = f"the table lags from {cursor} on, {pending} messages behind the position {known.position},"
            yield str(table), cursor, known.position - 1, text
