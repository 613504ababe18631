"""Whether one shard's trouble stays its own: the other's lag, while every replica of a shard is down. Pure.

It must judge only what it can: what touches both shards, or what a fault before has left behind, proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from e2e.chaos.figures import STEADY_SECONDS
from e2e.chaos.injecting import Injected
from e2e.chaos.layout import Layout, pod_of
from e2e.chaos.observing import Sample
from e2e.chaos.scenario import Kind
from e2e.kit.checks import Check

LEAST_SECONDS = 3 * STEADY_SECONDS
"""A shorter outage would not show whether the other shard stands still."""


def isolated(
    faults: Sequence[Injected], samples: Sequence[Sample], layout: Layout, rate: float, *, demanded: bool = False
) -> list[Check]:
    """One check, or none where no outage could be judged and none is `demanded`. `rate` is that of each shard.

    Steady is what a recovery has to reach, STEADY_SECONDS of production; on a machine too slow for that, twice the
    worst of as long a time before. Never as much as half of what was produced meanwhile: who stands still has more.
    """
    judged = [each for fault, shard in outages(faults, layout) for each in _peaks(fault, shard, samples, layout, rate)]
    if not judged and not demanded:
        return []
    peak, limit = max(judged, key=lambda each: each[0] - each[1], default=(0, 0.0))
    summary = f"lag at most {peak:,}, allowed {limit:,.0f} messages, in {len(judged)} outages"
    found = summary if judged else "no outage that could be judged"
    return [Check("while a shard was down, the other's lag stayed steady", bool(judged) and peak <= limit, found)]


def outages(faults: Sequence[Injected], layout: Layout) -> list[tuple[Injected, int]]:
    """Faults that held every replica of a shard down for long enough, while nothing was done to anybody else; with the
    shard. A replica is down without its ClickHouse server, or without its aggregator."""
    found = []
    for fault in faults:
        hit = _touched(fault, layout)
        shard = next((s for s in range(1, layout.shards + 1) if hit <= {*layout.shard(s)}), None)
        if shard is None or layout.shards < 2 or fault.error or fault.fault.kind not in (Kind.KILL, Kind.FREEZE):
            continue
        long_enough = fault.ended is not None and fault.ended - fault.began >= LEAST_SECONDS
        whole = {pod_of(name) for name in hit} == {*layout.pods(shard)}
        alone = all(_touched(other, layout) <= {*layout.shard(shard)} for other in faults if _overlap(fault, other))
        if long_enough and whole and alone:
            found.append((fault, shard))
    return found


def _peaks(
    fault: Injected, shard: int, samples: Sequence[Sample], layout: Layout, rate: float
) -> Iterator[tuple[int, float]]:
    """The worst lag of each other shard and what is allowed. None when it was beyond that as the outage began, of what
    had been before, or when the shard that was to be down was loaded all the same."""
    assert fault.ended is not None
    seconds = fault.ended - fault.began
    before = [sample for sample in samples if fault.began - seconds <= sample.at <= fault.began]
    seen = [sample for sample in samples if fault.began < sample.at <= fault.ended]
    if not seen or seen[-1].lags[shard - 1] <= rate * seconds / 2:
        return
    for other in (index for index in range(layout.shards) if index != shard - 1):
        usual = max((sample.lags[other] for sample in before), default=0)
        limit = max(rate * STEADY_SECONDS, min(2 * usual, rate * seconds / 2))
        if seen[0].lags[other] <= limit:
            yield max(sample.lags[other] for sample in seen), limit


def _touched(fault: Injected, layout: Layout) -> set[str]:
    names = filter(None, (fault.fault.target, fault.fault.peer, fault.victim))
    return {process for name in names for process in layout.members(name)}


def _overlap(one: Injected, other: Injected) -> bool:
    ended = [fault.ended if fault.ended is not None else float("inf") for fault in (one, other)]
    return other.began <= ended[0] and one.began <= ended[1]
