"""Two columns added to a table under load, on real servers: exact, or the exit code is 1.

    .venv/bin/python bench/schema_rollout.py --replicas 4 --rate 2000
    .venv/bin/python bench/schema_rollout.py --seed 1 --seeds 10 --kill-rate 500
    .venv/bin/python bench/schema_rollout.py --seeds 3 --rate 100 --no-barrier

Nothing is killed during the first change. With `--seeds`, more changes follow on the same servers, during each of which
its seed kills an aggregator, a ClickHouse replica or the operator at one step of the rollout; with `--no-barrier` the
table is altered without a rollout while an aggregator dies with a block of it in flight, and replays have to be
decided by provenance. `held` is how long the table was paused, `behind` the greatest age of a message when it was
stored: of the changed table, of the others until the release, of the others from there to the end.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from blockhouse_operator.api.rollout import ShardRollout
from e2e.kit.workspace import stderr_to, workspace
from e2e.rollouts.plan import plan
from e2e.rollouts.stage import Stage
from e2e.rollouts.story import Story, perform
from e2e.rollouts.verdict import Figures, figures, judge, others_summary

out = Console(width=160)


TITLES = ("change", "killed", "rows", "rollout", "held", "behind", "others", "later", "replays", "verdict")


class Strategy(StrEnum):
    """`spec.rollout.strategy`."""

    ROLLING = "RollingRestart"
    RELOAD = "Reload"


def main(
    seed: Annotated[int, typer.Option(envvar="SEED", help="The first seed.")] = 1,
    seeds: Annotated[int, typer.Option(help="How many changes with a SIGKILL, after one without.")] = 0,
    replicas: Annotated[int, typer.Option(min=2, max=8, help="ClickHouse replicas, and aggregators.")] = 4,
    rate: Annotated[float, typer.Option(min=1, help="Messages a second to both Kafka clusters together.")] = 2000,
    rows: Annotated[int, typer.Option(min=1, help="Rows of each message.")] = 10,
    block_age: Annotated[float, typer.Option(min=0.1, max=60, help="Seconds in which rows are gathered.")] = 1.0,
    kill_rate: Annotated[float | None, typer.Option(min=1, help="The same while a process is killed.")] = None,
    strategy: Annotated[Strategy, typer.Option(help="What aggregators do after the change.")] = Strategy.ROLLING,
    barrier: Annotated[bool, typer.Option(help="Hold the table while it is altered.")] = True,
    folder: Annotated[Path | None, typer.Option(help="Run here, on this disk, and keep the logs.")] = None,
) -> None:
    """Roll schema changes out under load; exit code 0 only if every one was exact."""
    rollout = ShardRollout.model_validate({"strategy": strategy.value})
    names = [f"r{n}" for n in range(1, replicas + 1)]
    restarts = strategy is Strategy.ROLLING
    stories = [Story(seed=seed, rate=rate, rows=rows, barrier=barrier)]
    for number in range(seed, seed + seeds):
        kill = plan(number, names, restarts=restarts) if barrier else None
        stories.append(Story(seed=number + 1, rate=kill_rate or rate, rows=rows, kill=kill, barrier=barrier))
    began = time.monotonic()

    def log(line: str) -> None:
        out.print(f"{time.monotonic() - began:7.1f} s  {line}", highlight=False)

    with (
        tempfile.TemporaryDirectory(prefix="blockhouse-rollout-") as made,
        workspace(folder or Path(made) / "run") as home,
        stderr_to(home / "clients.log"),
    ):
        log(f"starting servers and {replicas} aggregators, all their files in {home}")
        with Stage(home, replicas, rollout, block_age=block_age, faults=not barrier) as stage:
            passed = play(stories, stage, log)
    raise typer.Exit(0 if passed else 1)


def play(stories: Sequence[Story], stage: Stage, log: Callable[[str], None]) -> bool:
    """One change after the other; whether all were exact. The table is printed whatever happens."""
    grid = Table(*TITLES)
    passed = 0
    try:
        for number, story in enumerate(stories):
            name = f"SEED={story.seed - 1}" if story.kill else f"change {number + 1}"
            log(f"{name}: {story.kill or 'no process is killed by it'}")
            result = perform(story, stage, log)
            checks = judge(result)
            verdict = "exact" if all(check.holds for check in checks) else "FAILED"
            passed += verdict == "exact"
            for check in checks:
                out.print(f"  {'ok  ' if check.holds else 'FAIL'} {check.demand}: {check.found}", highlight=False)
            out.print(f"  {others_summary(result)}", highlight=False)
            grid.add_row(name, result.killed or "-", f"{result.rows:,}", *cells(figures(result)), verdict)
    finally:
        out.print(grid)
    log(f"exact: {passed} of {len(stories)}")
    return passed == len(stories)


def cells(found: Figures) -> Iterator[str]:
    for seconds in (found.whole, found.held, found.changed_behind, found.others_behind, found.others_later):
        yield f"{seconds:.1f} s"
    yield f"{found.replays} ({found.deduplicated} deduplicated, {found.by_provenance} by provenance)"


if __name__ == "__main__":
    typer.run(main)
