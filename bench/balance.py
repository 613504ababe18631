"""What assignment by load costs and gains: CPU seconds, evenness against assignment by count, partitions moved.

    python bench/balance.py [--partitions 1000,10000,100000] [--per-task 100] [--seeds 5]
    python bench/balance.py --plot docs/balance.svg           a day of 1,000 partitions, drawn; nothing is measured

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
from pathlib import Path
from random import Random
from typing import Any

from bench.balance_plot import STEPS, days, drawn
from blockhouse.balance.count import TaskLimits, needed
from blockhouse.balance.model import Assignment, quality
from blockhouse.balance.packing import by_count, giants, limit, repack
from blockhouse.balance.sticky import renew
from blockhouse.balance.triggers import tasks_for
from blockhouse.load.history import LoadHistory, Window
from blockhouse.load.model import PartitionLoad, Sample
from blockhouse.placement.model import TopicPartition

TOLERANCE = 0.10
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
    after, step = timed(lambda: renew(packed, tasks, later, TOLERANCE))
    alone = giants(later, len(tasks), TOLERANCE)
    bound = max(limit(later, len(tasks), TOLERANCE, alone), *(later[key] for key in alone), 0.0)
    grown = tasks_for(after, later, math.ceil(1.5 * len(tasks)))
    wider, growth = timed(lambda: renew(after, grown, later, TOLERANCE))
    mean = quality(after, later).mean
    return {
        "discovered, CPU s": seconds,
        "largest first, CPU s": packing,
        "by count, max/mean": quality(by_number, weights).ratio,
        "largest first, max/mean": quality(packed, weights).ratio,
        "by count drifted, max/mean": quality(by_number, later).ratio,
        "drifted, max/mean": quality(packed, later).ratio,
        "sticky step, max/mean": quality(after, later).ratio,
        "best possible, max/mean": max(bound / mean, 1.0),
        "sticky step, moved %": 100 * len(after.moved_from(packed)) / partitions,
        "repacked, moved %": 100 * len(repack(tasks, later).moved_from(packed)) / partitions,
        "sticky step, CPU s": step,
        "half as many tasks more, moved %": 100 * len(wider.moved_from(after)) / partitions,
        "half as many more, max/mean": quality(wider, later).ratio,
        "half as many more, CPU s": growth,
        "giants": len(alone),
    }


def plot(path: Path) -> None:
    weights = rates(DRAWN, 1)
    both = days(weights, [f"task{n}" for n in range(DRAWN // DRAWN_PER_TASK)], TOLERANCE, 2)
    path.write_text(drawn(both, DRAWN))
    for day in both:
        print(f"{day.title}: max/mean at most {day.ratio:.3f}, {day.moved} partitions moved in {STEPS} steps")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--partitions", default="1000,10000,100000")
    parser.add_argument("--per-task", type=int, default=100)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--plot", type=Path, help="draw the loads of tasks, by count and by load, into this file")
    arguments = parser.parse_args()
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
