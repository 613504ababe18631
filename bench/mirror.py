"""A mirror beside a plain consume-produce loop and MirrorMaker 2, on the same two brokers.

    python bench/mirror.py [--records 400000] [--rounds 5]       everything below, about twenty minutes
    python bench/mirror.py --parts backlog --only loop,effectively-once --rounds 9
    python bench/mirror.py --parts latency,handover              a steady stream at 5 MB/s; a rebalance under it
    python bench/mirror.py --parts tasks --records 800000        one, two and four tasks
    python bench/mirror.py --parts backlog --against ../before   beside the mirror of another checkout

Figures, never pass or fail, but for records that are lost or doubled. `docs/bench.md` explains how to read them. Tables
come on standard output, each run as it ends on standard error.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from functools import partial
from pathlib import Path
from statistics import median
from typing import Annotated, Any

import typer

from bench.mirrors.contestants import BASELINE, CONTESTANTS, Contestant, Ours, Start
from bench.mirrors.field import Field, field
from bench.mirrors.rounds import Run, Summary, race, summarize
from bench.mirrors.steady import Lateness, Pause, lateness, pauses

PARTS = ("backlog", "tasks", "latency", "handover")
AGAINST = "against"
TASKS = (1, 2, 4)
MB = 1e6


def main(
    records: Annotated[int, typer.Option(min=10_000, help="Records of 1 KB in a backlog.")] = 400_000,
    rounds: Annotated[int, typer.Option(min=1, help="Rounds of one run each.")] = 5,
    only: Annotated[str, typer.Option(help=f"Some of {', '.join(CONTESTANTS)}.")] = "all",
    parts: Annotated[str, typer.Option(help=f"Some of {', '.join(PARTS)}.")] = ",".join(PARTS),
    rate: Annotated[float, typer.Option(help="MB/s of the steady stream.")] = 5.0,
    seconds: Annotated[float, typer.Option(help="How long the stream is watched in each round.")] = 15.0,
    moves: Annotated[int, typer.Option(min=1, help="Rebalances under the stream.")] = 6,
    against: Annotated[
        Path | None, typer.Option(help="A checkout of another commit, after make setup: its mirror takes part too.")
    ] = None,
    folder: Annotated[Path, typer.Option(help="Where servers keep their data.")] = Path(".run/bench"),
    json_file: Annotated[Path | None, typer.Option("--json", help="Write the figures to this file too.")] = None,
) -> None:
    asked = chosen(parts, PARTS, "part")
    starts = {name: CONTESTANTS[name][1] for name in chosen(only, tuple(CONTESTANTS), "contestant")}
    if against is not None:
        starts[AGAINST] = partial(_of_checkout, checkout=against.absolute())
    found: dict[str, Any] = {}
    with field(folder.absolute() / f"mirror-{os.getpid()}") as bed:
        if "backlog" in asked:
            found["backlog"] = backlog(bed, starts, rounds, records, BASELINE)
        if "tasks" in asked:
            tasks = {f"tasks-{n}": partial(Ours, delivery="EffectivelyOnce", tasks=n) for n in TASKS}
            found["tasks"] = backlog(bed, tasks, rounds, records, f"tasks-{TASKS[0]}")
        if "latency" in asked:
            found["latency"] = latency(bed, starts, rounds, rate * MB, seconds)
        if "handover" in asked:
            found["handover"] = handover(bed, rate * MB, moves)
    if json_file is not None:
        json_file.write_text(json.dumps(found, indent=1) + "\n")


main.__doc__ = __doc__


def chosen(given: str, known: Sequence[str], what: str) -> list[str]:
    """The names, in the order in which they are known. Raises BadParameter for one that does not exist."""
    names = list(known) if given == "all" else [name.strip() for name in given.split(",")]
    if unknown := set(names) - set(known):
        raise typer.BadParameter(f"no {what} {', '.join(sorted(unknown))}: there are {', '.join(known)}")
    return [name for name in known if name in names]


def _of_checkout(field: Field, topic: str, checkout: Path) -> Contestant:
    other = Ours(field, topic, "EffectivelyOnce")
    other.process.blockhouse = checkout / ".venv" / "bin" / "blockhouse"
    return other


def backlog(field: Field, starts: Mapping[str, Start], rounds: int, records: int, baseline: str) -> dict[str, Any]:
    """Records a second and CPU, in interleaved rounds."""
    runs = race(field, starts, rounds, records, lambda run: progress(run_line(run)))
    summaries = summarize(runs, baseline)
    print(f"\nMedians of {rounds} rounds of {records:,} records; CPU s a GB of keys and values")
    print(f"{'':36}{'k rec/s':>9}{'MB/s':>8}{'CPU/GB':>8}{'brokers':>9}{'/ base':>8}{'lowest':>8}{'CPU / base':>12}")
    for line in summaries:
        print(summary_line(line), flush=True)
    return {"runs": [asdict(run) for run in runs], "summary": [asdict(line) for line in summaries]}


def latency(field: Field, starts: Mapping[str, Start], rounds: int, rate: float, seconds: float) -> list[Any]:
    """From source append to a consumer of the target, in interleaved rounds."""
    runs: list[Lateness] = []
    names = [name for name in starts if name != "bare"]  # it drops the timestamps by which this is measured
    for number in range(1, rounds + 1):
        for name in names if number % 2 else reversed(names):
            runs.append(lateness(field, starts[name], name, number, rate, seconds))
            progress(
                f"round {number} {name}: p50 {runs[-1].p50:.1f} ms, p99 {runs[-1].p99:.1f} ms, kept {runs[-1].kept:.0%}"
            )
    print(f"\nMedians of {rounds} rounds of {seconds:g} s at {rate / MB:g} MB/s; source append to target consumer, ms")
    print(f"{'':36}{'p50':>8}{'p99':>8}{'longest':>9}{'cores':>8}{'kept':>8}")
    for name in names:
        own = [run for run in runs if run.name == name]
        kinds = ("p50", "p99", "longest", "cores", "kept")
        p50, p99, longest, cores, kept = (median(getattr(run, kind) for run in own) for kind in kinds)
        print(f"{title(name):36}{p50:8.1f}{p99:8.1f}{longest:9.1f}{cores:8.2f}{kept:8.0%}", flush=True)
    return [asdict(run) for run in runs]


def handover(field: Field, rate: float, moves: int) -> list[Any]:
    """Pauses of partitions that a rebalance moves, and of those beside them."""
    found = pauses(field, rate, moves, progress)
    print(f"\n{moves} rebalances between two tasks at {rate / MB:g} MB/s: longest time without a record, ms")
    for text, moved in (("partitions that moved", True), ("partitions that stayed", False)):
        print(f"{text:36}{pause_line([each for each in found if each.moved is moved])}", flush=True)
    return [asdict(each) for each in found]


def pause_line(found: Sequence[Pause]) -> str:
    if not found:
        return "none"
    times = [each.milliseconds for each in found]
    return f"{len(times)} times, median {median(times):.0f}, longest {max(times):.0f}"


def title(name: str) -> str:
    if name == AGAINST:
        return "Blockhouse of the other checkout"
    return CONTESTANTS[name][0] if name in CONTESTANTS else f"Blockhouse, {name.removeprefix('tasks-')} tasks"


def run_line(run: Run) -> str:
    return (
        f"round {run.round} {run.name:18}{run.records_per_second / 1e3:7.0f} k records/s in {run.seconds:.1f} s, "
        f"{run.cpu / run.gigabytes:.1f} CPU s a GB, brokers {run.brokers / run.gigabytes:.1f}, "
        f"strangers {run.strangers:.2f} cores"
    )


def summary_line(line: Summary) -> str:
    ratios = (line.ratio, line.lowest_ratio, line.cpu_ratio)
    base, lowest, cpu = ("-" if ratio is None else f"{ratio:.2f}" for ratio in ratios)
    return (
        f"{title(line.name):36}{line.records_per_second / 1e3:9.0f}{line.megabytes_per_second:8.0f}"
        f"{line.cpu_per_gigabyte:8.1f}{line.brokers_per_gigabyte:9.1f}{base:>8}{lowest:>8}{cpu:>12}"
    )


def progress(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    typer.run(main)
