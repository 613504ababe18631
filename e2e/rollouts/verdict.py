"""Whether a rollout lost or doubled nothing and came to its end, and its figures. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from e2e.chaos.verdict import standing_still, watched
from e2e.demo.verdict import Check, exact
from e2e.rollouts.stage import CHANGED, OTHERS, TABLES
from e2e.rollouts.story import Told


@dataclass(frozen=True, slots=True)
class Figures:
    """Seconds: the changed table held; from the declaration to the end; behind at most: the changed table, the others
    until the release, the others from there to the end. Then blocks that were sent again, and how many of those the
    server recognised, or their rows decided about."""

    held: float
    whole: float
    changed_behind: float
    others_behind: float
    others_later: float
    replays: int
    deduplicated: int
    by_provenance: int


def figures(told: Told) -> Figures:
    held = [m.at for m in told.moments if (m.request, m.moment) == ("hold", "done")]
    released = [m.at for m in told.moments if m.request == "release"]
    hold, free = (held[0], released[-1]) if held and released else (told.over, told.over)
    end = told.over + told.story.after
    return Figures(
        held=free - hold,
        whole=told.over - told.begun,
        changed_behind=told.lags.peak([CHANGED], told.begun, end),
        others_behind=told.lags.peak(OTHERS, told.begun, free),
        others_later=told.lags.peak(OTHERS, free, end),
        replays=told.counted["replays"],
        deduplicated=told.counted["deduplicated"],
        by_provenance=told.counted["provenance_decisions"],
    )


def others_told(told: Told) -> str:
    """How old rows of the other tables were when they were stored, and which were the oldest."""
    span = OTHERS, told.begun, told.over + told.story.after
    worst = told.lags.furthest(*span)
    if worst is None:
        return "no block of another table was stored"
    half, most = (told.lags.percentile(*span, percent) for percent in (50, 99))
    return (
        f"blocks of other tables were stored within {half:.1f} s (half of them) and {most:.1f} s (99 of 100) of their "
        f"oldest message; the oldest, offset {worst.begin} of {worst.stream} for {worst.table}, after "
        f"{worst.at - worst.made:.1f} s, {worst.at - told.begun:.1f} s into the rollout"
    )


def judge(told: Told) -> tuple[Check, ...]:
    """All that had to hold."""
    return tuple(_checks(told))


def _checks(told: Told) -> Iterator[Check]:
    replicas, kill = len(told.statuses), told.story.kill
    yield exact(told.report, replicas, TABLES, told.rows)
    wrong = sum(told.wrong_defaults.values())
    yield Check("rows of the old revision have the defaults of the new columns", wrong == 0, f"{wrong} have not")
    newer = told.of_new_revision
    mixed = len(newer) == replicas and min(newer.values()) > 0 and len(set(newer.values())) == 1
    yield Check("rows of both revisions are on every replica", mixed, f"of the new one: {dict(newer)}")
    expected = [1 + told.changes if table == CHANGED else 1 for table in TABLES]
    yield Check(
        "one revision was recorded for each change",
        list(told.revisions) == expected,
        f"revisions {list(told.revisions)}",
    )
    surplus = told.counted["surplus_rows"]
    yield Check("no aggregator found rows stored twice", surplus == 0, f"{surplus} rows too many")
    yield watched(told.verified, streams=2 * replicas)
    stuck = standing_still(told.statuses)
    yield Check("everything resumed by itself", not stuck, "; ".join(stuck) or "no stream stopped, no table blocked")
    crashes = "; ".join(told.crashes[:3])
    yield Check("no aggregator failed internally", not told.crashes, crashes or "no internal error logged")
    if not told.story.barrier:
        decided = figures(told).by_provenance
        yield Check("replays across the ALTER were decided by provenance", decided > 0, f"{decided} blocks")
    if kill is not None:
        yield Check("the SIGKILL was carried out", bool(told.killed), told.killed or f"nobody died: {kill}")
