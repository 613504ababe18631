"""Two columns added to a table under load, on real servers: exact, or the exit code is 1.

    .venv/bin/python bench/schema_rollout.py --replicas 4 --rate 2000
    .venv/bin/python bench/schema_rollout.py --seed 1 --seeds 10 --rate 500
    .venv/bin/python bench/schema_rollout.py --seed 1 --seeds 4 --rate 100 --no-barrier

Without `--seeds` nothing is killed. With it, each seed kills an aggregator, a ClickHouse replica or the operator at one
step of the rollout; with `--no-barrier` the table is altered behind everybody's back while an aggregator dies with a
block of it in flight, and replays have to be decided by provenance. `held` is how long the table was held, `behind` the
age of the oldest message that was not stored: of the changed table, of the others until the release, of the others from
there to the end.
"""

from __future__ import annotations

import tempfile
import time
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from blockhouse_operator.api.parts import Rollout
from e2e.demo.verdict import Check
from e2e.demo.workspace import stderr_to, workspace
from e2e.rollouts.plan import plan
from e2e.rollouts.story import Story, perform
from e2e.rollouts.verdict import Figures, figures, judge

out = Console(width=160)


class Strategy(StrEnum):
    """`spec.rollout.strategy`."""

    ROLLING = "RollingRestart"
    RELOAD = "Reload"


def main(
    seed: Annotated[int, typer.Option(envvar="SEED", help="The first seed.")] = 1,
    seeds: Annotated[int, typer.Option(help="How many runs with a SIGKILL; 0 is one run without.")] = 0,
    replicas: Annotated[int, typer.Option(min=2, max=8, help="ClickHouse replicas, and aggregators.")] = 4,
    rate: Annotated[float, typer.Option(min=1, help="Messages a second to both Kafka clusters, ten rows each.")] = 2000,
    strategy: Annotated[Strategy, typer.Option(help="What aggregators do after the change.")] = Strategy.ROLLING,
    barrier: Annotated[bool, typer.Option(help="Hold the table while it is altered.")] = True,
    folder: Annotated[Path | None, typer.Option(help="Keep the logs of every run here.")] = None,
) -> None:
    """Roll schema changes out under load; exit code 0 only if every run was exact."""
    rollout = Rollout.model_validate({"strategy": strategy.value})
    grid = Table("seed", "killed", "rows", "rollout", "held", "behind", "others", "later", "replays", "verdict")
    failed = 0
    for number in range(max(1, seeds)):
        names = [f"r{n}" for n in range(1, replicas + 1)]
        kill = plan(seed + number, names, restarts=rollout.strategy == "RollingRestart") if seeds and barrier else None
        story = Story(seed=seed + number, replicas=replicas, rate=rate, rollout=rollout, kill=kill, barrier=barrier)
        out.print(f"SEED={story.seed}: {kill or 'nothing is killed'}", highlight=False)
        rows, found, checks = run(story, folder)
        bad = [check for check in checks if not check.holds]
        failed += bool(bad)
        for check in checks:
            out.print(f"  {'ok  ' if check.holds else 'FAIL'} {check.wanted}: {check.found}", highlight=False)
        cells = (f"{v:.1f} s" for v in (found.whole, found.held, found.changed_behind))
        others = (f"{v:.1f} s" for v in (found.others_behind, found.others_later))
        replays = f"{found.replays} ({found.deduplicated} deduplicated, {found.by_provenance} by provenance)"
        verdict = "FAILED" if bad else "exact"
        grid.add_row(str(story.seed), str(kill or "-"), f"{rows:,}", *cells, *others, replays, verdict)
    out.print(grid)
    raise typer.Exit(1 if failed else 0)


def run(story: Story, folder: Path | None) -> tuple[int, Figures, tuple[Check, ...]]:
    began = time.monotonic()

    def tell(line: str) -> None:
        out.print(f"{time.monotonic() - began:7.1f} s  {line}", highlight=False)

    with tempfile.TemporaryDirectory(prefix="blockhouse-rollout-") as made:
        wanted = folder / f"seed-{story.seed}" if folder else Path(made) / "run"
        with workspace(wanted) as home, stderr_to(home / "clients.log"):
            told = perform(story, home, tell)
        return told.rows, figures(told), judge(told)


if __name__ == "__main__":
    typer.run(main)
