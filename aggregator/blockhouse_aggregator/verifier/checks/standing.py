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
    """First offset of a stream's log, its last stable offset, the id of its topic (empty: not known) and the epoch of
    its leader (-1: not known)."""

    begin: int
    end: int
    topic_id: str = ""
    leader_epoch: int = -1


@dataclass(slots=True)
class Standing:
    """What was seen of one stream at earlier looks. Times are of a steady clock, in seconds; `beyond`, `cut` and
    `other` count looks in a row; `end` is the log's at the look that saw most of topic `topic_id`."""

    position: int = -1
    moved_at: float = 0.0
    beyond: int = 0
    cut: int = 0
    other: int = 0
    end: int = -1
    topic_id: str = ""
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
    standing.other = standing.other + 1 if recreated and bounds.end > bounds.begin else 0
    if standing.other >= _SURE:
        text = (
            f"the topic was created again: its id is {bounds.topic_id} and it holds [{bounds.begin}, {bounds.end}), "
            f"but what is committed is of topic id {recorded}"
        )
        found.append(Finding(Kind.OTHER_TOPIC, text, None, bounds.begin, bounds.end - 1))
    standing.beyond = standing.beyond + 1 if position > bounds.end and not recreated else 0
    if standing.beyond >= _SURE:
        text = f"position {position} is beyond the end {bounds.end} of the log: it was truncated, or never read from"
        found.append(Finding(Kind.BEYOND_END, text, None, bounds.end, position - 1))
    found += _cut(standing, bounds)
    waiting = bounds.end > position and not recreated
    if position != standing.position or not waiting:
        standing.position, standing.moved_at = position, now
    elif now - standing.moved_at >= stalled_after:
        text = (
            f"nothing was scanned beyond {position} for {now - standing.moved_at:.0f} s; the log ends at {bounds.end}"
        )
        found.append(Finding(Kind.STALLED, text, None, position, bounds.end - 1))
    found += _tables(standing, known, now, stalled_after)
    return found


def _cut(standing: Standing, bounds: Bounds) -> list[Finding]:
    """The log ends below where it was seen to end: whether anybody had read from there or not, it was cut."""
    if bounds.topic_id != standing.topic_id or bounds.end >= standing.end:
        standing.end, standing.topic_id, standing.cut = bounds.end, bounds.topic_id, 0
        return []
    standing.cut += 1
    if standing.cut < _SURE:
        return []
    text = f"the log ended at {standing.end} and ends at {bounds.end} now: it was truncated"
    finding = Finding(Kind.TRUNCATED, text, None, bounds.end, standing.end - 1)
    standing.end, standing.cut = bounds.end, 0
    return [finding]


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
