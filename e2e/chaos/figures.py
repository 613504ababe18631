"""Figures of a run from what was observed: recovery times, lag peaks, memory slopes. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass

from e2e.chaos.injecting import Injected
from e2e.chaos.layout import pod_of
from e2e.chaos.observing import Resident, Sample
from e2e.chaos.scenario import Kind

STEADY_SECONDS = 3.0
"""Production of so many seconds may be on its way without anything being wrong."""
WARM_SECONDS, LEAST_SECONDS = 60.0, 60.0
"""A process's first minute is not counted, and less than another minute proves nothing about its memory."""


@dataclass(frozen=True, slots=True)
class Recovery:
    """Of the shard with the most lag. Seconds from the fault's beginning, and from its end, until it was steady for
    good and every stream owned; 0 when nothing changed, None when the next fault began before. `takeover`: until every
    stream of a dead aggregator had another owner, None where there was none. `lag_peak` is in messages.
    """

    from_begin: float | None
    from_end: float | None
    takeover: float | None
    lag_peak: int


def recovery(fault: Injected, samples: Sequence[Sample], rate: float, until: float = float("inf")) -> Recovery:
    """What a fault did before the moment `until`, at which the next one began."""
    ended = fault.ended if fault.ended is not None else fault.began
    after = [s for s in samples if fault.began <= s.at <= until]
    steady = steady_since(after, rate)
    return Recovery(
        from_begin=None if steady is None else max(0.0, steady - fault.began),
        from_end=None if steady is None else max(0.0, steady - ended),
        takeover=_takeover(fault, samples),
        lag_peak=max((s.lag for s in after), default=0),
    )


def recoveries(
    faults: Sequence[Injected], samples: Sequence[Sample], rate: float, pause: float = 0.0
) -> tuple[Recovery, ...]:
    """One for each fault; a fault that begins while another is active ends the observation of that one, `pause` seconds
    earlier: when faults wait for each other's recovery, what happens after it belongs to none."""
    begins = sorted(fault.began for fault in faults)
    return tuple(
        recovery(fault, samples, rate, min((at - pause for at in begins if at > fault.began), default=float("inf")))
        for fault in faults
    )


def steady_since(samples: Sequence[Sample], rate: float) -> float | None:
    """The moment since which every stream is owned and no more than STEADY_SECONDS of production is on its way in any
    shard; None when it is not so at the end. (One stream of many that stands still is slow to show in the lag.)"""
    limit = rate * STEADY_SECONDS
    disturbed = [at for at, sample in enumerate(samples) if sample.lag > limit or sample.unowned]
    if not disturbed:
        return samples[0].at if samples else None
    return samples[disturbed[-1] + 1].at if disturbed[-1] + 1 < len(samples) else None


def _takeover(fault: Injected, samples: Sequence[Sample]) -> float | None:
    """Only for an aggregator that was killed: until others, or its next life, have all its streams."""
    if fault.fault.kind not in (Kind.KILL, Kind.STRIKE) or not fault.victim.startswith("aggregator-"):
        return None
    pod = pod_of(fault.victim)
    before = [s for s in samples if s.at < fault.began]
    if not before:
        return None
    lost = {stream: owner for stream, owner in before[-1].owners.items() if owner[0] == pod}
    if not lost:
        return None
    for sample in samples:
        if sample.at >= fault.began and all(sample.owners.get(s, dead) != dead for s, dead in lost.items()):
            return sample.at - fault.began
    return None


@dataclass(frozen=True, slots=True)
class Memory:
    """The longest life of one process: megabytes at its end, and megabytes an hour it grew by, after its first minute;
    `slope` is None for lives too short for one."""

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
