"""Whether a rollout lost or doubled nothing and came to its end, and its figures. Pure."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from e2e.chaos.verdict import standing_still, watched
from e2e.kit.checks import Check, exact
from e2e.rollouts.stage import CHANGED, OTHERS, TABLES
from e2e.rollouts.story import Result


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


def figures(result: Result) -> Figures:
    held = [m.at for m in result.moments if (m.request, m.moment) == ("hold", "done")]
    released = [m.at for m in result.moments if m.request == "release"]
    hold, free = (held[0], released[-1]) if held and released else (result.over, result.over)
    end = result.over + result.story.after
    return Figures(
        held=free - hold,
        whole=result.over - result.begun,
        changed_behind=result.lags.peak([CHANGED], result.begun, end),
        others_behind=result.lags.peak(OTHERS, result.begun, free),
        others_later=result.lags.peak(OTHERS, free, end),
        replays=result.counted["replays"],
        deduplicated=result.counted["deduplicated"],
        by_provenance=result.counted["provenance_decisions"],
    )


def others_summary(result: Result) -> str:
    """How old rows of the other tables were when they were stored, and which were the oldest."""
    span = OTHERS, result.begun, result.over + result.story.after
    worst = result.lags.furthest(*span)
    if worst is None:
        return "no block of another table was stored"
    half, most = (result.lags.percentile(*span, percent) for percent in (50, 99))
    return (
        f"blocks of other tables were stored within {half:.1f} s (half of them) and {most:.1f} s (99 of 100) of their "
        f"oldest message; the oldest, offset {worst.begin} of {worst.stream} for {worst.table}, after "
        f"{worst.at - worst.made:.1f} s, {worst.at - result.begun:.1f} s into the rollout"
    )


def judge(result: Result) -> tuple[Check, ...]:
    """All that had to hold."""
    return tuple(_checks(result))


def _checks(result: Result) -> Iterator[Check]:
    replicas, kill = len(result.statuses), result.story.kill
    yield exact(result.report, replicas, TABLES, result.rows)
    wrong = sum(result.wrong_defaults.values())
    yield Check("rows of the old revision have the defaults of the new columns", wrong == 0, f"{wrong} have not")
    newer = result.of_new_revision
    mixed = len(newer) == replicas and min(newer.values()) > 0 and len(set(newer.values())) == 1
    yield Check("rows of both revisions are on every replica", mixed, f"of the new one: {dict(newer)}")
    expected = [1 + result.changes if table == CHANGED else 1 for table in TABLES]
    yield Check(
        "one revision was recorded for each change",
        list(result.revisions) == expected,
        f"revisions {list(result.revisions)}",
    )
    surplus = result.counted["surplus_rows"]
    yield Check("no aggregator found rows stored twice", surplus == 0, f"{surplus} rows too many")
    yield watched(result.verified, streams=2 * replicas)
    stuck = standing_still(result.statuses)
    yield Check("everything resumed by itself", not stuck, "; ".join(stuck) or "no stream stopped, no table blocked")
    crashes = "; ".join(result.crashes[:3])
    yield Check("no aggregator failed internally", not result.crashes, crashes or "no internal error logged")
    if not result.story.barrier:
        decided = figures(result).by_provenance
        yield Check("replays across the ALTER were decided by provenance", decided > 0, f"{decided} blocks")
    if kill is not None:
        yield Check("the SIGKILL was carried out", bool(result.killed), result.killed or f"no process died: {kill}")
