"""Many seeded worlds at once, or one of them printed as a story.

    python -m tests.simulation --seeds 2000          from a random first seed, printed (SEED=n sets it)
    python -m tests.simulation --seed 4711           one seed, with its timeline
    python -m tests.simulation --safeguards          remove each safeguard and see within how many seeds it is missed

Exit code 1 when harm was found (with --safeguards: when it was not).
"""

from __future__ import annotations

import argparse
import gc
import multiprocessing
import os
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from secrets import randbelow

from tests.simulation.run import Outcome, setting_of, simulate

PRINTED_LINES = 120
"""Lines of the timeline that are printed before the harm."""
CHUNK, LIFE = 8, 250
"""Seeds that a process is given at once, and how often before it ends: worlds leave memory behind, 0.1 MB each."""
FAILURES = 5
"""Failing seeds after which a batch ends."""


def emit(text: str) -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def print_story(outcome: Outcome, lines: int) -> None:
    """The timeline: virtual seconds, who, what."""
    story = outcome.story
    if len(story) > lines:
        emit(f"... {len(story) - lines} earlier lines: --lines 0 prints all")
        story = story[-lines:]
    for at, who, what in story:
        emit(f"{at:9.3f}  {who:<24} {what}")


def run_one(seed: int, lines: int) -> int:
    emit(f"SEED={seed}  {setting_of(seed)}")
    outcome = simulate(seed, keep_story=True)
    print_story(outcome, lines or len(outcome.story))
    length = f"{outcome.seconds:.1f} virtual seconds, {outcome.steps} steps"
    emit(f"{outcome.harm or 'no harm'}; {length}, trace {outcome.trace:x}")
    return 1 if outcome.harm else 0


def outcomes(seeds: Iterable[int], processes: int) -> Iterator[Outcome]:
    with multiprocessing.get_context("fork").Pool(processes, _collect_seldom, maxtasksperchild=LIFE) as pool:
        yield from pool.imap_unordered(simulate, seeds, chunksize=CHUNK)


def _collect_seldom() -> None:
    """A world makes much garbage in cycles, all of it small: a tenth of the time goes into looking for it."""
    gc.freeze()
    gc.set_threshold(100_000, 20, 100)


def run_many(first: int, count: int, processes: int, *, failures: int = FAILURES) -> int:
    """Exit code 1 when some seed did harm; its story is played again and printed."""
    began, harmful, struck, virtual = time.monotonic(), [], Counter[str](), 0.0
    emit(f"simulation: SEED={first}, {count} seeds, {processes} processes")
    for done, outcome in enumerate(outcomes(range(first, first + count), processes), start=1):
        virtual += outcome.seconds
        struck.update(outcome.counts.keys())
        if outcome.harm is not None:
            harmful.append(outcome)
            emit(f"seed {outcome.seed}: {outcome.harm}")
            if len(harmful) >= failures:
                break
        if done % 1000 == 0:
            emit(f"simulation: {done} seeds, {done / (time.monotonic() - began) * 60:.0f} a minute")
    seconds = time.monotonic() - began
    for outcome in harmful[:1]:
        emit(f"--- python -m tests.simulation --seed {outcome.seed} ---")
        print_story(simulate(outcome.seed, keep_story=True), PRINTED_LINES)
    faults = ", ".join(f"{what} {times}" for what, times in sorted(struck.items()))
    emit(f"simulation: worlds in which it struck: {faults}")
    emit(
        f"simulation: {done} seeds from SEED={first}, {len(harmful)} with harm, {virtual / 3600:.1f} virtual hours in"
        f" {seconds:.0f} s, {done / seconds * 60:.0f} seeds a minute"
    )
    return 1 if harmful else 0


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__.splitlines()[0])
    parser.add_argument("--seeds", type=int, default=2000, help="how many (%(default)s)")
    parser.add_argument("--first", type=int, help="the first of them (default: SEED, else random)")
    parser.add_argument("--seed", type=int, help="only this one, printed as a story")
    parser.add_argument("--lines", type=int, default=0, help="of the story, from its end (default: all)")
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--failures", type=int, default=FAILURES, help="end after so many harmful seeds (%(default)s)")
    parser.add_argument(
        "--safeguards", nargs="*", metavar="WORD", help="remove each, or those whose name contains a WORD"
    )
    options = parser.parse_args()
    if options.seed is not None:
        return run_one(options.seed, options.lines)
    first = options.first if options.first is not None else int(os.environ.get("SEED") or randbelow(1 << 31))
    if options.safeguards is not None:
        from tests.simulation.safeguards import run_without

        return run_without(options.safeguards, first=first, seeds=min(options.seeds, 1000), processes=options.processes)
    return run_many(first, options.seeds, options.processes, failures=options.failures)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of names must be iterated alike in every run
        os.execve(
            sys.executable,
            [sys.executable, "-m", "tests.simulation", *sys.argv[1:]],
            {**os.environ, "PYTHONHASHSEED": "0"},
        )
    sys.exit(main())
