"""Chaos on this machine: real servers, real aggregators, faults at random or by plan, and the audit of every row."""

from __future__ import annotations

import json
import secrets
import signal
import sys
from functools import partial
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated

import typer
import yaml
from rich.console import Console

from e2e.chaos.scenario import MAX_SHARDS, MOST_PODS, Kind, Scenario
from e2e.clickhouse_choice import CURRENT, ClickHouseOption

if TYPE_CHECKING:  # heavy: `--help` must not load Kafka's and ClickHouse's clients
    from e2e.chaos.run import Outcome

DEFAULT_FOLDER = Path(".run/chaos")
app = typer.Typer(help=__doc__, no_args_is_help=True)

Folder = Annotated[Path, typer.Option(help="Where everything is kept; emptied at the start.")]
Json = Annotated[Path | None, typer.Option("--json", help="Write what was found to this file too.")]
Replicas = Annotated[int, typer.Option(envvar="REPLICAS", min=2, max=8, help="Each shard's, with an aggregator each.")]
Rate = Annotated[float, typer.Option(envvar="RATE", min=1, help="Messages a second to each shard, ten rows each.")]
Shards = Annotated[int, typer.Option(envvar="SHARDS", min=1, max=MAX_SHARDS, help="Each with a topic of its own.")]
Alerts = Annotated[bool, typer.Option("--alerts", help="Run a Prometheus with the shipped rules beside it.")]
Pictures = Annotated[
    Path | None, typer.Option(help="Draw panels of the shipped dashboards into this folder, as SVG; implies --alerts.")
]
Seed = Annotated[int | None, typer.Option(envvar="SEED", min=0, help="Default: a fresh one, which is printed.")]


@app.command("random")
def at_random(
    seed: Seed = None,
    minutes: Annotated[float, typer.Option(envvar="MINUTES", min=0.5, help="How long rows are produced.")] = 3,
    shards: Shards = 1,
    replicas: Replicas = 4,
    rate: Rate = 200,
    folder: Folder = DEFAULT_FOLDER,
    json_file: Json = None,
    alerts: Alerts = False,
    pictures: Pictures = None,
    clickhouse: ClickHouseOption = CURRENT,  # noqa: ARG001 - its callback has set it for everything that runs from here
) -> None:
    """Random faults from a seed. Exit code 0 only if every row is on every replica once and a block was replayed.

    Examples:

      blockhouse chaos random

      blockhouse chaos random --shards 2 --replicas 2

      SEED=7 MINUTES=10 make chaos
    """
    from e2e.chaos.catalogue import plan

    _check_size(shards, replicas)
    isolated = _isolated()
    seed = seed if seed is not None else secrets.randbelow(10**6)
    typer.echo(f"SEED={seed}")
    without = _without(isolated)
    scenario = plan(seed, minutes * 60, replicas, rate, shards=shards, without=without)
    _finish([_perform(scenario, folder, isolated, alerts=alerts, pictures=pictures)], json_file)


@app.command("run")
def run_file(
    scenario: Annotated[Path, typer.Argument(help="YAML, as docs/testing.md describes it.")],
    folder: Folder = DEFAULT_FOLDER,
    json_file: Json = None,
    alerts: Alerts = False,
    pictures: Pictures = None,
    clickhouse: ClickHouseOption = CURRENT,  # noqa: ARG001 - its callback has set it for everything that runs from here
) -> None:
    """The faults of a scenario file.

    Examples:

      blockhouse chaos run e2e/chaos/scenarios/zones.yaml

      blockhouse chaos run --alerts e2e/chaos/scenarios/rolling.yaml

      blockhouse chaos run --pictures docs/pictures e2e/chaos/scenarios/alerts.yaml
    """
    isolated = _isolated()
    try:
        requested = Scenario.model_validate(yaml.safe_load(scenario.read_text()))
    except (OSError, ValueError, yaml.YAMLError) as error:
        raise typer.BadParameter(f"{scenario}: {error}", param_hint="SCENARIO") from error
    _finish([_perform(requested, folder, isolated, alerts=alerts, pictures=pictures)], json_file)


@app.command("table")
def scenario_table(
    cases: Annotated[list[str] | None, typer.Argument(help="Cases; default: all.")] = None,
    runs: Annotated[int, typer.Option(min=1, help="Runs of each.")] = 10,
    seed: Annotated[int, typer.Option(envvar="SEED", help="Of the order and the details of all faults.")] = 1,
    shards: Shards = 1,
    replicas: Replicas = 4,
    rate: Rate = 200,
    folder: Folder = DEFAULT_FOLDER,
    json_file: Json = None,
    clickhouse: ClickHouseOption = CURRENT,  # noqa: ARG001 - its callback has set it for everything that runs from here
) -> None:
    """Each fault alone, several times in one run: the table of docs/testing.md. On a quiet machine; it takes two hours.

    Example: blockhouse chaos table kill-aggregator zone-down --runs 3
    """
    from e2e.chaos.catalogue import CASES, permitted_cases, series
    from e2e.chaos.report import table

    _check_size(shards, replicas)
    isolated = _isolated()
    if unknown := set(cases or ()) - set(CASES):
        raise typer.BadParameter(f"no case {', '.join(sorted(unknown))}: there are {', '.join(CASES)}")
    requested = cases or permitted_cases(_without(isolated), shards)
    outcome = _perform(series(requested, runs, seed, replicas, rate, shards=shards), folder, isolated)
    typer.echo(table(outcome))
    _finish([outcome], json_file)


@app.command("plan")
def show_plan(
    seed: Annotated[int, typer.Argument(help="The seed.")],
    minutes: Annotated[float, typer.Option(envvar="MINUTES", min=0.5)] = 3,
    shards: Shards = 1,
    replicas: Replicas = 4,
    rate: Rate = 200,
) -> None:
    """The scenario of a seed as YAML, to be changed and given to `blockhouse chaos run`.

    Example: blockhouse chaos plan 7 > scenario.yaml
    """
    from e2e.chaos.catalogue import plan

    _check_size(shards, replicas)
    scenario = plan(seed, minutes * 60, replicas, rate, shards=shards)
    found = scenario.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    typer.echo(yaml.safe_dump(found, sort_keys=False).rstrip())


def _check_size(shards: int, replicas: int) -> None:
    if shards * replicas > MOST_PODS:
        raise typer.BadParameter(f"{shards} shards of {replicas} replicas: at most {MOST_PODS} in all")


def _without(isolated: bool) -> list[Kind]:
    """Kinds of faults that this machine does not permit; prints them."""
    from e2e.chaos.catalogue import not_permitted
    from e2e.chaos.clock import library

    missing = not_permitted(isolated, library() is not None)
    for why, kinds in missing.items():
        typer.echo(f"{why}, so left out: {', '.join(kinds)}")
    return [kind for kinds in missing.values() for kind in kinds]


def _isolated() -> bool:
    """Enter namespaces of our own where that is permitted. This may start the process again."""
    from e2e.chaos.network import enter, permitted

    for number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, _interrupt)
    if not permitted():
        return False
    enter([sys.executable, *sys.orig_argv[1:]])
    return True


def _perform(
    scenario: Scenario, folder: Path, isolated: bool, *, alerts: bool = False, pictures: Path | None = None
) -> Outcome:
    from e2e.chaos.report import show
    from e2e.chaos.run import perform
    from e2e.kit.workspace import stderr_to, workspace

    console = Console() if sys.stdout.isatty() else Console(width=160)
    with workspace(folder) as home, stderr_to(home / "chaos.log"):
        for fault in () if scenario.in_turn else scenario.faults:
            console.print(f"plan: {fault.at:6.1f} s  {fault}", highlight=False)
        try:
            log = partial(console.print, highlight=False)
            outcome = perform(scenario, home, log, isolated=isolated, alerts=alerts, pictures=pictures)
        except BaseException:
            console.print(f"SEED={scenario.seed}: failed; logs and configurations are in {home}")
            raise
        show(console, outcome)
    return outcome


def _finish(outcomes: list[Outcome], json_file: Path | None) -> None:
    from e2e.chaos.report import as_json

    if json_file is not None:
        json_file.write_text(json.dumps([as_json(outcome) for outcome in outcomes], indent=1) + "\n")
    failed = [outcome for outcome in outcomes if not outcome.passed]
    for outcome in failed:
        demands = "; ".join(check.demand for check in outcome.checks if not check.holds)
        typer.echo(f"FAILED: SEED={outcome.scenario.seed} {outcome.scenario.name}: {demands}")
    if failed:
        raise typer.Exit(1)
    typer.echo(f"exactly once, under fire: {len(outcomes)} of {len(outcomes)} runs")


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
