"""What assignment by load costs and gains: CPU seconds, evenness against assignment by count, partitions moved.

    python bench/balance.py [--partitions 1000,10000,100000] [--per-task 100] [--seeds 5]
    python bench/balance.py --days 20                         days of 1,000 partitions on 20 tasks, by a mirror's rules
    python bench/balance.py --plot docs/balance.svg           the first of them, drawn

Rates are of a Pareto distribution (a few partitions have most of the load), then every one drifts by a lognormal
factor of 0.3. Figures only; nothing passes or fails. `discovered` is the work from names to an assignment: rates out of
a history, the number of tasks, the assignment.
"""

from __future__ import annotations

import argparse
import math
import statistics
import time
from collections.abc import Callable
from datetime import datetime
from pathlib import Path
from random import Random
from typing import Any

from bench.balance_plot import STEP, STEPS, Days, days, drawn, known
from blockhouse.balance.count import TaskLimits, needed
from blockhouse.balance.model import Assignment, Weights, quality
from blockhouse.balance.packing import by_count, giants, limit, repack
from blockhouse.balance.sticky import renew
from blockhouse.balance.triggers import AIM, tasks_for
from blockhouse.load.history import LoadHistory, Window
from blockhouse.load.model import PartitionLoad, Sample
from blockhouse.placement.model import TopicPartition

TOLERANCE = 0.10
STEP_TOLERANCE = AIM * TOLERANCE
"""Of a mirror and of each rebalance of it."""
ALPHA, DRIFT = 2.0, 0.3
NOW = 1_700_000_000.0
DRAWN, DRAWN_PER_TASK = 1000, 50
"""Partitions of the drawing, and of each task in it."""


def rates(partitions: int, seed: int) -> dict[TopicPartition, float]:
    """Bytes/s by partition, 100 partitions a topic, Pareto distributed."""
    chance = Random(seed)
    return {
        TopicPartition(f"topic-{n // 100:05}", n % 100): 50_000 * chance.paretovariate(ALPHA) for n in range(partitions)
    }


def drifted(weights: dict[TopicPartition, float], seed: int) -> dict[TopicPartition, float]:
    chance = Random(seed)
    return {key: weight * math.exp(chance.gauss(0, DRIFT)) for key, weight in weights.items()}


def timed(work: Callable[[], Any]) -> tuple[Any, float]:
    begin = time.process_time()
    return work(), time.process_time() - begin


def discovered(history: LoadHistory, keys: list[TopicPartition], limits: TaskLimits) -> Assignment:
    """From names to tasks, as a mirror does at its start."""
    found = history.rates(keys, Window(), NOW, 50 * 1024.0)
    weights = {key: rate.bytes for key, rate in found.items()}
    count = needed(weights, limits).tasks
    return repack([f"task{n}" for n in range(count)], weights, limits.most_partitions)


def measure(partitions: int, per_task: int, seed: int) -> dict[str, float]:
    weights = rates(partitions, seed)
    tasks = [f"task{n}" for n in range(max(partitions // per_task, 2))]
    history = LoadHistory()
    for minute in range(10):
        loads = {key: PartitionLoad(weight, 1.0) for key, weight in weights.items()}
        history.add(Sample("bench", "bench", NOW - 600 + 60 * minute, 60, loads))
    usable = sum(weights.values()) / len(tasks)
    limits = TaskLimits(1.2 * usable / 0.7, 0.7, most_partitions=5 * per_task, most=2 * len(tasks))
    _, seconds = timed(lambda: discovered(history, list(weights), limits))
    packed, packing = timed(lambda: repack(tasks, weights))
    by_number = by_count(dict.fromkeys(tasks, ()), weights)
    later = drifted(weights, seed + 1)
    after, step = timed(lambda: renew(packed, tasks, later, STEP_TOLERANCE))
    alone = giants(later, len(tasks), STEP_TOLERANCE)
    bound = max(limit(later, len(tasks), TOLERANCE, alone), *(later[key] for key in alone), 0.0)
    grown = tasks_for(after, later, math.ceil(1.5 * len(tasks)))
    wider, growth = timed(lambda: renew(after, grown, later, STEP_TOLERANCE))
    mean = quality(after, later).mean
    return {
        "discovered, CPU s": seconds,
        "largest first, CPU s": packing,
        "by count, max/mean": quality(by_number, weights).ratio,
        "largest first, max/mean": quality(packed, weights).ratio,
        "by count drifted, max/mean": quality(by_number, later).ratio,
        "drifted, max/mean": quality(packed, later).ratio,
        "sticky step, max/mean": quality(after, later).ratio,
        "its limit, max/mean": max(bound / mean, 1.0),
        "sticky step, moved %": 100 * len(after.moved_from(packed)) / partitions,
        "repacked, moved %": 100 * len(repack(tasks, later).moved_from(packed)) / partitions,
        "sticky step, CPU s": step,
        "half as many tasks more, moved %": 100 * len(wider.moved_from(after)) / partitions,
        "half as many more, max/mean": quality(wider, later).ratio,
        "half as many more, CPU s": growth,
        "giants": len(alone),
    }


def a_day(seed: int, *, measured: bool = False) -> Days:
    """Rates known exactly at each look, or as a mirror with the defaults measures them: p95 of three hours."""
    weights, history = rates(DRAWN, seed), LoadHistory()

    def weigh(current: Weights, now: datetime) -> Weights:
        loads = {key: PartitionLoad(rate) for key, rate in current.items()}
        history.add(Sample("bench", "bench", now.timestamp(), STEP.total_seconds(), loads))
        return {key: rate.bytes for key, rate in history.rates(current, Window(), now.timestamp(), 0.0).items()}

    tasks = [f"task{n}" for n in range(DRAWN // DRAWN_PER_TASK)]
    return days(weights, tasks, TOLERANCE, seed + 1, weigh if measured else known)


def plot(path: Path) -> None:
    found = a_day(1)
    path.write_text(drawn(found, DRAWN))
    for day in (found.by_count, found.by_load):
        print(f"{day.title}: max/mean at most {day.ratio:.3f}, {day.moved} partitions moved in {STEPS} steps")


def compare_days(seeds: int) -> None:
    """Days in which a partition is above the limit by itself are left out: it would be all that is seen."""
    exact = [day for seed in range(1, seeds + 1) if not (day := a_day(seed)).giant]
    measured = [day.by_load for seed in range(1, seeds + 1) if not (day := a_day(seed, measured=True)).giant]
    rows = {
        "by count": [day.by_count for day in exact],
        "by load": [day.by_load for day in exact],
        "by load, measured": measured,
    }
    heads = ("before a look", "after it", "moved in a day", "moved %, most")
    print(f"{f'{len(exact)} of {seeds} days; median (highest)':42}" + "".join(f"{head:>20}" for head in heads))
    for name, found in rows.items():
        over = [share for day in found for share in day.over]
        of = f"{len(over)} of {len(found) * STEPS * DRAWN // DRAWN_PER_TASK} tasks"
        largest = f", the largest partition of each at least {min(over):.2f} of the mean" if over else ""
        cells = [
            [day.ratio for day in found],
            [day.settled for day in found],
            [float(day.moved) for day in found],
            [100 * max(day.moves) / DRAWN for day in found],
        ]
        print(f"{name:42}" + "".join(f"{f'{statistics.median(cell):.3f} ({max(cell):.3f})':>20}" for cell in cells))
        print(f"    above the tolerance before a look: {of}{largest}")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="1000,10000,100000")
    parser.add_argument("--per-task", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--plot", type=Path, help="draw the loads of tasks, by count and by load, into this file")
    parser.add_argument("--days", type=int, help="loads of so many days just before and after each look, and moves")
    arguments = parser.parse_args()
    if arguments.days:
        compare_days(arguments.days)
        return
    if arguments.plot:
        plot(arguments.plot)
        return
    counts = [int(count) for count in arguments.partitions.split(",")]
    runs = {
        count: [measure(count, arguments.per_task, seed) for seed in range(1, arguments.seeds + 1)] for count in counts
    }
    print(
        f"{'median (highest) of ' + str(arguments.seeds) + ' seeds':36}" + "".join(f"{count:>20}" for count in counts)
    )
    for name in runs[counts[0]][0]:
        cells = []
        for count in counts:
            found = [run[name] for run in runs[count]]
            cells.append(f"{statistics.median(found):.3f} ({max(found):.3f})")
        print(f"{name:36}" + "".join(f"{cell:>20}" for cell in cells), flush=True)


if __name__ == "__main__":
    main()
