"""Whether the demonstration of a mirror has shown what it set out to show. Pure: from what was seen and the audit.

It must never pass for lack of an event: a run in which nothing grew, moved or died proves nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blockhouse_mirror.audit.compare import PartitionAudit
from e2e.kit.checks import Check


@dataclass(frozen=True, slots=True)
class Killed:
    """A SIGKILL. `held` is how many partitions its victim had then, `seconds` how long until all were mirrored again;
    none when that was not seen."""

    what: str
    held: int
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Observed:
    """Numbers of running tasks, by when: `calm` before the rush, `grown` in it, `shrunk` after it. `moved` counts
    partitions that changed their task because others had become hot."""

    calm: int
    grown: int
    moved: int
    shrunk: int
    worker: Killed | None
    driver: Killed | None


def judge(seen: Observed, audits: Sequence[PartitionAudit], partitions: int, produced: int) -> tuple[Check, ...]:
    """All checks, in the order in which they are printed. `produced` is how many records the source acknowledged."""
    return (
        exact(audits, partitions, produced),
        Check("more tasks when load grew", seen.grown > seen.calm > 0, f"{seen.calm}, then {seen.grown}"),
        Check(
            "partitions moved when others became hot",
            seen.moved > 0,
            f"{seen.moved} of {partitions} partitions changed their task",
        ),
        _survived("a worker", seen.worker),
        _survived("the driver", seen.driver),
        Check("fewer tasks when load fell", 0 < seen.shrunk < seen.grown, f"{seen.grown}, then {seen.shrunk}"),
    )


def exact(audits: Sequence[PartitionAudit], partitions: int, produced: int) -> Check:
    """Exact, and about everything: an audit of too few partitions or records is none."""
    names = {(each.topic, each.partition) for each in audits}
    compared = sum(each.compared for each in audits)
    counts = {
        kind: sum(each.faults[kind].size for each in audits) for kind in ("missing", "doubled", "changed", "strange")
    }
    reordered = sum(each.reordered for each in audits)
    return Check(
        "every record of the source is on the target exactly once, unchanged and in order",
        all(each.exact for each in audits) and len(names) == len(audits) == partitions and compared == produced > 0,
        f"{produced:,} produced, {compared:,} compared in {len(names)} of {partitions} partitions; "
        f"{counts['missing']} lost, {counts['doubled']} doubled, {counts['changed']} changed, "
        f"{counts['strange']} strange, {reordered} out of order",
    )


def _survived(what: str, killed: Killed | None) -> Check:
    demand = f"{what} was killed with partitions in its hands, and all were mirrored again"
    if killed is None:
        return Check(demand, False, "none was killed")
    again = "not mirrored again" if killed.seconds is None else f"mirrored again after {killed.seconds:.1f} s"
    return Check(demand, killed.held > 0 and killed.seconds is not None, f"{killed.what} had {killed.held}, {again}")
