"""Figures of a run from what was observed: recovery times, lag peaks, memory slopes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from e2e.chaos.injecting import Injected
from e2e.chaos.observing import Resident, Sample
from e2e.chaos.scenario import Kind

STEADY_SECONDS = 3.0
"""Production of so many seconds may be on its way without anything being wrong."""
CALM_FOR = 3
"""Samples in a row below that."""
WARM_SECONDS, LEAST_SECONDS = 60.0, 60.0
"""A process's first minute is not counted, and less than another minute says nothing about its memory."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Seconds, None where it never came: from the fault's beginning, and from its end, until the lag was steady again;
    `takeover` until every stream of a dead aggregator had another owner. `lag_peak` is in messages."""

    from_begin: float | None
    from_end: float | None
    takeover: float | None
    lag_peak: int


def recovery(fault: Injected, samples: Sequence[Sample], rate: float) -> Recovery:
    """What a fault did; others going on at the same time are counted in."""
    ended = fault.ended if fault.ended is not None else fault.began
    calm_at = _calm(samples, ended, rate * STEADY_SECONDS)
    until = calm_at if calm_at is not None else float("inf")
    peak = max((s.lag for s in samples if fault.began <= s.at <= until), default=0)
    return Recovery(
        from_begin=None if calm_at is None else calm_at - fault.began,
        from_end=None if calm_at is None else calm_at - ended,
        takeover=_takeover(fault, samples),
        lag_peak=peak,
    )


def _calm(samples: Sequence[Sample], after: float, limit: float) -> float | None:
    """The first moment after which the lag stays below the limit for a while."""
    later = [s for s in samples if s.at >= after]
    for at in range(len(later) - CALM_FOR + 1):
        if all(s.lag <= limit for s in later[at : at + CALM_FOR]):
            return later[at].at
    return None


def _takeover(fault: Injected, samples: Sequence[Sample]) -> float | None:
    """Only for an aggregator that was killed: until others, or its next life, have all its streams."""
    if fault.fault.kind not in (Kind.KILL, Kind.STRIKE) or not fault.victim.startswith("aggregator-"):
        return None
    replica = fault.victim.removeprefix("aggregator-")
    before = [s for s in samples if s.at < fault.began]
    if not before:
        return None
    lost = {stream: owner for stream, owner in before[-1].owners.items() if owner[0] == replica}
    if not lost:
        return None
    for sample in samples:
        if sample.at >= fault.began and all(sample.owners.get(s, dead) != dead for s, dead in lost.items()):
            return sample.at - fault.began
    return None


@dataclass(frozen=True, slots=True)
class Memory:
    """The longest life of one process: megabytes at its end, and megabytes an hour it grew by, after its first minute;
    `slope` is None for lives too short to tell."""

    name: str
    seconds: float
    megabytes: float
    slope: float | None


def memory(residents: Sequence[Resident]) -> tuple[Memory, ...]:
    """One line per process, by name."""
    lives: dict[tuple[str, int], list[Resident]] = defaultdict(list)
    for resident in residents:
        lives[resident.name, resident.life].append(resident)
    longest: dict[str, Memory] = {}
    for (name, _), points in lives.items():
        seconds = points[-1].at - points[0].at
        if name not in longest or seconds > longest[name].seconds:
            warm = [p for p in points if p.at - points[0].at >= WARM_SECONDS]
            longest[name] = Memory(name, seconds, points[-1].size / 1e6, _slope(warm))
    return tuple(longest[name] for name in sorted(longest))


def _slope(points: Sequence[Resident]) -> float | None:
    """Least squares, megabytes an hour."""
    if len(points) < 2 or points[-1].at - points[0].at < LEAST_SECONDS:
        return None
    mean_at = sum(p.at for p in points) / len(points)
    mean_size = sum(p.size for p in points) / len(points)
    spread = sum((p.at - mean_at) ** 2 for p in points)
    slope: float = sum((p.at - mean_at) * (p.size - mean_size) for p in points) / spread
    return slope * 3600 / 1e6


def longest_without_progress(samples: Sequence[Sample]) -> float:
    """Seconds between the two samples furthest apart: how far the figures can be trusted."""
    return max((b.at - a.at for a, b in pairwise(samples)), default=0.0)
