"""Plan where the partitions of a Kafka fleet live, and carry plans out.

Plans are made from a live cluster or from files, and written in the format of kafka-reassign-partitions. Nothing is
changed in a cluster except by `apply --execute` and `apply --cancel`.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from blockhouse.errors import BlockhouseError
from blockhouse.fleet import execution, plan_cli
from blockhouse.fleet import options as o
from blockhouse.fleet.inputs import connected, read_plan
from blockhouse.fleet.model import Fleet
from blockhouse.fleet.view import show_progress, show_states
from blockhouse.placement.model import InvalidInput, PartitionMap

app = typer.Typer(no_args_is_help=True, help="Plan where the partitions of a Kafka fleet live, and carry plans out.")
app.add_typer(plan_cli.app, name="plan")


@app.command(
    epilog="Examples:\n\n"
    "  blockhouse topics apply plan.json --bootstrap-server kafka:9092\n\n"
    "  blockhouse topics apply plan.json --bootstrap-server kafka:9092 --execute"
)
def apply(
    plan: Annotated[Path, typer.Argument(help="A plan of `topics plan`, or any kafka-reassign-partitions JSON.")],
    bootstrap_server: o.BootstrapServer = None,
    config: o.ConfigFile = None,
    kafka_cluster: o.KafkaName = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without, only show what would be done.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take back what is moving of this plan.")] = False,
    in_flight: Annotated[int, typer.Option(min=1, help="Partitions that may move at the same time.")] = 50,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the end; 0: for ever.")] = 0.0,
) -> None:
    """Carry a plan out, watch it, and verify the end: sets in order, in sync, led by their preferred leader.

    Kafka goes on with what was started when this command ends: run it again to resume watching, or with --cancel.
    """
    if execute and cancel:
        raise InvalidInput(["--execute and --cancel contradict each other: choose one"])
    wanted = read_plan(plan)
    fleet = connected(bootstrap_server, config, kafka_cluster)
    if fleet is None:
        raise InvalidInput(["a live cluster is missing; give --bootstrap-server, or --config"])
    with fleet:
        if cancel:
            _cancel(fleet, wanted, _pause_until(timeout))
        elif execute:
            _execute(fleet, wanted, _pause_until(timeout), in_flight)
        else:
            show_states(Console(), execution.survey(fleet, wanted), wanted)
            typer.echo("nothing was changed; --execute does it", err=True)


def _execute(fleet: Fleet, wanted: PartitionMap, pause: execution.Pause, in_flight: int) -> None:
    console, shown = Console(), None
    try:
        for progress in execution.execute(fleet, wanted, pause, in_flight):
            if progress != shown:
                show_progress(console, progress)
            shown = progress
    except KeyboardInterrupt:
        typer.echo(
            "stopped watching; Kafka goes on: run it again to resume, or with --cancel to take it back", err=True
        )
        raise typer.Exit(130) from None
    console.print("verified: every partition is as planned, in sync and led by its preferred leader")


def _cancel(fleet: Fleet, wanted: PartitionMap, pause: execution.Pause) -> None:
    for key in execution.cancel(fleet, wanted, pause):
        typer.echo(f"cancelled: {key}")
    typer.echo(
        "nothing of the plan is moving; Kafka gives back the brokers but not their order in the set: "
        "apply the --rollback file of the plan to restore it",
        err=True,
    )


def _pause_until(timeout: float) -> execution.Pause:
    """Sleep, but raise BlockhouseError once `timeout` seconds (0: never) have passed."""
    end = time.monotonic() + timeout

    def pause(seconds: float) -> None:
        if timeout and time.monotonic() + seconds > end:
            raise BlockhouseError(
                f"the plan is not carried out after {timeout:g} s; Kafka goes on with what was started: "
                "run it again to resume, or with --cancel to take it back"
            )
        time.sleep(seconds)

    return pause
