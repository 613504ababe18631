"""Plan where the partitions of a Kafka fleet live, and carry plans out; create topics.

Plans are computed from a live cluster or from files, and written in the format of kafka-reassign-partitions. Nothing is
changed in a cluster except by `create --execute`, `apply --execute`, `apply --cancel` and `throttle`.
"""

from __future__ import annotations

import contextlib
import time
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.fleet import create_cli, execution, plan_cli, throttle_cli
from blockhouse.fleet import options as o
from blockhouse.fleet import throttle_inputs as t
from blockhouse.fleet.inputs import find_kafka, read_plan
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.load import options as lo
from blockhouse.fleet.load.sources import opened
from blockhouse.fleet.model import Fleet
from blockhouse.fleet.throttle_guard import IntervalGuard
from blockhouse.fleet.throttle_view import show_rows
from blockhouse.fleet.throttling import Throttler
from blockhouse.fleet.view import show_progress, show_states
from blockhouse.load.model import LoadSource
from blockhouse.placement.model import InvalidInput, PartitionMap
from blockhouse.throttle.report import stalled_text

app = typer.Typer(
    no_args_is_help=True,
    help="Plan where the partitions of a Kafka fleet live, carry plans out, create topics.",
    epilog="Example: blockhouse topics create --config aggregator.yaml --partitions 4 --execute",
)
app.add_typer(plan_cli.app, name="plan")
app.add_typer(throttle_cli.app, name="throttle")
app.command(
    epilog="Examples:\n\n"
    "  blockhouse topics create --config aggregator.yaml --partitions 4 --execute\n\n"
    "  blockhouse topics create events-01 events-02 --partitions 4 --set retention.ms=86400000"
    " --bootstrap-server kafka:9092"
)(create_cli.create)


@app.command(
    epilog="Examples:\n\n"
    "  blockhouse topics apply plan.json --bootstrap-server kafka:9092\n\n"
    "  blockhouse topics apply plan.json --bootstrap-server kafka:9092 --execute --capacity 10Gbit/s\n\n"
    "  blockhouse topics apply plan.json --bootstrap-server kafka:9092 --execute --throttle 50MB/s"
)
def apply(
    plan: Annotated[Path, typer.Argument(help="A plan of `topics plan`, or any kafka-reassign-partitions JSON.")],
    bootstrap_server: o.BootstrapServer = None,
    config: o.ConfigFile = None,
    kafka_cluster: o.KafkaName = None,
    execute: Annotated[bool, typer.Option("--execute", help="Do it; without, only show what would be done.")] = False,
    cancel: Annotated[bool, typer.Option("--cancel", help="Take back what is moving of this plan.")] = False,
    in_flight: Annotated[int, typer.Option(min=1, help="Partitions that may move at the same time.")] = 50,
    per_broker: Annotated[
        int, typer.Option(min=0, help="Replicas that may arrive at one broker at the same time; 0: any number.")
    ] = 0,
    timeout: Annotated[float, typer.Option(min=0, help="Seconds to wait for the end; 0: indefinitely.")] = 0.0,
    throttle: Annotated[
        str | None,
        typer.Option(help="auto (follow the load), a RATE such as 50MB/s, or none.", rich_help_panel=t.THROTTLE),
    ] = None,
    capacity: t.CapacityOption = None,
    broker_capacity: t.BrokerCapacities = None,
    min_rate: t.MinRate = "10MB/s",
    max_rate: t.MaxRate = None,
    share: t.Share = 0.9,
    interval: t.Interval = 30.0,
    state: t.StateFile = None,
    adopt: t.Adopt = False,
    source: lo.Source = None,
    source_config: lo.SourceConfig = None,
) -> None:
    """Carry a plan out, watch it, and verify the end: sets in order, in sync, led by their preferred leader.

    Copying is throttled: each broker to what its clients leave of --capacity, or to a fixed --throttle RATE. Throttles
    are set before anything moves and removed at the end; what another tool or person set is left alone. With a throttle
    and without --execute, what is written is measured for an interval: whether the moves would end is shown.

    Kafka continues what was started when this command ends: run it again to resume watching, or with --cancel.
    """
    if execute and cancel:
        raise InvalidInput(["--execute and --cancel contradict each other: choose one"])
    planned = read_plan(plan)
    cluster = find_kafka(bootstrap_server, config, kafka_cluster)
    if cluster is None:
        raise InvalidInput(["a live cluster is missing; give --bootstrap-server, or --config"])
    with KafkaFleet(cluster) as fleet, contextlib.ExitStack() as stack:
        options = t.ThrottleOptions(
            capacity, tuple(broker_capacity or ()), min_rate, max_rate, share, interval, state, adopt
        )
        if cancel:
            _cancel(fleet, planned, _pause_until(timeout), options)
            return
        pace, chosen = execution.Pace(in_flight, per_broker or None), None
        if execute or throttle or options.knows_capacity:
            chosen = t.chosen_throttle(throttle, options)
        throttler = None
        if chosen is not None:
            loads = stack.enter_context(opened(lo.chosen(source, source_config, None, None, None), cluster))
            throttler = _throttler(fleet, planned, *chosen, loads)
        if execute:
            guard = IntervalGuard(throttler, time.monotonic, interval) if throttler else None
            _execute(fleet, planned, _pause_until(timeout), pace, guard)
        else:
            progress = execution.survey(fleet, planned)
            show_states(Console(), progress, planned)
            if throttler is not None and progress.waiting:
                _foresee(fleet, planned, progress, pace, throttler, interval)
            typer.echo("nothing was changed; --execute does it", err=True)


def _throttler(
    fleet: KafkaFleet, planned: PartitionMap, rate: int | None, options: t.ThrottleOptions, loads: LoadSource
) -> Throttler:
    """A throttle of the plan's partitions: a fixed rate, or by load."""
    store = t.store_of(fleet, options)
    return t.throttler_for(fleet, options, t.FixedRate(store, rate) if rate else store, planned, loads)


def _foresee(
    fleet: Fleet,
    planned: PartitionMap,
    progress: execution.Progress,
    pace: execution.Pace,
    throttler: Throttler,
    interval: float,
) -> None:
    """Show how what would start now would be throttled, and whether it would end: changes nothing."""
    typer.echo(f"measuring for {interval:g} s how fast the partitions are written", err=True)
    for wait in (interval, 0.0):
        starting = execution.startable(planned, progress.waiting, fleet.partitions(), fleet.moves(), pace)
        rows = throttler.forecast(starting)
        time.sleep(wait)
    show_rows(Console(), rows)
    for row in rows:
        if row.stalled:
            typer.echo(f"warning: it would not end: {stalled_text(row)}", err=True)


def _execute(
    fleet: Fleet, planned: PartitionMap, pause: execution.Pause, pace: execution.Pace, guard: execution.Guard | None
) -> None:
    console, shown, delays = Console(), None, set[str]()

    def delayed(error: Retryable) -> None:
        if error.reason and error.reason not in delays:
            delays.add(error.reason)
            typer.echo(f"warning: {error}; it is tried again", err=True)

    try:
        for progress in execution.execute(fleet, planned, pause, pace, guard, delayed):
            if progress != shown:
                delays.clear()
                show_progress(console, progress)
            shown = progress
    except KeyboardInterrupt:
        typer.echo(
            "stopped watching; Kafka continues, throttled as it is: "
            "run it again to resume, or with --cancel to take it back",
            err=True,
        )
        raise typer.Exit(130) from None
    gone = f", but {len(shown.gone)} that were deleted meanwhile," if shown and shown.gone else ""
    console.print(f"verified: every partition{gone} is as planned, in sync and led by its preferred leader")


def _cancel(fleet: KafkaFleet, planned: PartitionMap, pause: execution.Pause, options: t.ThrottleOptions) -> None:
    for key in execution.cancel(fleet, planned, pause):
        typer.echo(f"cancelled: {key}")
    store = t.store_of(fleet, options)
    if store.ownership():  # what other commands of ours move stays throttled
        throttler = t.throttler_for(fleet, options, store, t.owned_targets(fleet, store) or {})
        IntervalGuard(throttler, time.monotonic, options.interval).abandoned()
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
                f"the plan is not carried out after {timeout:g} s; Kafka continues what was started: "
                "run it again to resume, or with --cancel to take it back"
            )
        time.sleep(seconds)

    return pause
