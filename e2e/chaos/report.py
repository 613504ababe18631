"""What a run found, for people and for programs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from statistics import median
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from e2e.chaos.alerting import Firing
from e2e.chaos.figures import Recovery
from e2e.chaos.run import Outcome
from e2e.kit.checks import show_checks


def show(console: Console, outcome: Outcome) -> None:
    faults = Table(
        "at", "fault", "victim", "recovered after", "after its end", "takeover", "lag peak", box=box.SIMPLE_HEAD
    )
    for injected, found in outcome.faults:
        times = (_seconds(found.from_begin), _seconds(found.from_end), _seconds(found.takeover, "-"))
        faults.add_row(f"{injected.began:.1f} s", str(injected.fault), injected.victim, *times, f"{found.lag_peak:,}")
    console.print(faults)
    if outcome.alerts is not None:
        console.print(_alerts(outcome.alerts.fired))
    grid = Table("process", "longest life", "MB at its end", "MB an hour", box=box.SIMPLE_HEAD)
    for line in outcome.memory:
        slope = "too short" if line.slope is None else f"{line.slope:+,.0f}"
        grid.add_row(line.name, f"{line.seconds:.0f} s", f"{line.megabytes:,.0f}", slope)
    console.print(grid)
    console.print(
        f"seed {outcome.scenario.seed}: {outcome.rows:,} rows, {outcome.replays} replays ({outcome.deduplicated}"
        f" deduplicated, {outcome.by_provenance} decided by provenance), lag peak {outcome.lag_peak:,} messages,"
        f" window {outcome.scenario.window} blocks, {outcome.seconds:.0f} s in all",
        highlight=False,
        soft_wrap=True,
    )
    show_checks(console, outcome.checks)


def _alerts(fired: Sequence[Firing]) -> Table:
    grid = Table("alert", "fired at", "resolved at", "series", "about", box=box.SIMPLE_HEAD)
    for firing in fired:
        first, count = firing.about[0], len(firing.about)
        about = first if count == 1 else f"{first}; ..."
        times = f"{firing.began:.1f} s", _seconds(firing.ended, "never")
        grid.add_row(firing.alert, *times, str(count), about)
    return grid


def as_json(outcome: Outcome) -> dict[str, Any]:
    return {
        "scenario": outcome.scenario.model_dump(mode="json", by_alias=True),
        "passed": outcome.passed,
        "checks": [{"demand": c.demand, "holds": c.holds, "found": c.found} for c in outcome.checks],
        "faults": [
            {
                "fault": str(injected.fault),
                "victim": injected.victim,
                "began": round(injected.began, 1),
                "ended": None if injected.ended is None else round(injected.ended, 1),
                "error": injected.error,
                "recoveredAfter": found.from_begin,
                "afterItsEnd": found.from_end,
                "takeover": found.takeover,
                "lagPeak": found.lag_peak,
            }
            for injected, found in outcome.faults
        ],
        "alerts": None if outcome.alerts is None else [_firing(firing) for firing in outcome.alerts.fired],
        "memory": [
            {"name": m.name, "seconds": m.seconds, "megabytes": m.megabytes, "perHour": m.slope} for m in outcome.memory
        ],
        "rows": outcome.rows,
        "replays": outcome.replays,
        "deduplicated": outcome.deduplicated,
        "byProvenance": outcome.by_provenance,
        "lagPeak": outcome.lag_peak,
        "seconds": outcome.seconds,
        "timeline": list(outcome.timeline),
    }


def _firing(firing: Firing) -> dict[str, Any]:
    return {"alert": firing.alert, "fired": firing.began, "resolved": firing.ended, "about": list(firing.about)}


def table(outcome: Outcome) -> str:
    """The table in docs/testing.md: a line for each case. Times in seconds, lag in messages."""
    by_case: dict[str, list[Recovery]] = defaultdict(list)
    for injected, found in outcome.faults:
        by_case[injected.fault.case].append(found)
    titles = (
        "| fault alone | faults | from its beginning: median, worst | from its end: median, worst"
        " | takeover: median, worst | lag peak |",
        "|---|---|---|---|---|---|",
    )
    return "\n".join((*titles, *(_line(case, by_case[case]) for case in sorted(by_case))))


def _line(case: str, found: Sequence[Recovery]) -> str:
    begins = [r.from_begin for r in found if r.from_begin is not None]
    ends = [r.from_end for r in found if r.from_end is not None]
    takeovers = [r.takeover for r in found if r.takeover is not None]
    never = len(found) - len(begins)
    count = f"{len(found)}" + (f", {never} not recovered from" if never else "")
    peak = max(r.lag_peak for r in found)
    return f"| {case} | {count} | {_pair(begins)} | {_pair(ends)} | {_pair(takeovers)} | {peak:,} |"


def _pair(values: Sequence[float]) -> str:
    return f"{median(values):.1f}, {max(values):.1f}" if values else "-"


def _seconds(value: float | None, otherwise: str = "not before the next") -> str:
    return otherwise if value is None else f"{value:.1f} s"
