"""`blockhouse topics throttle`: how fast replicas are copied. Options in, a report out."""

from __future__ import annotations

import contextlib
import json
import signal
import time
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Annotated, Any

import typer
from rich.console import Console

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.units import time_span
from blockhouse.fleet import options as o
from blockhouse.fleet import throttle_inputs as t
from blockhouse.fleet.inputs import find_kafka
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.load import options as lo
from blockhouse.fleet.load.sources import opened
from blockhouse.fleet.throttle_http import Pause, answering
from blockhouse.fleet.throttle_replay import replay
from blockhouse.fleet.throttle_view import show_rows
from blockhouse.fleet.throttling import CONFIRM_SECONDS
from blockhouse.placement.model import InvalidInput
from blockhouse.throttle.model import Override, Ownership
from blockhouse.throttle.units import EXAMPLES, rate_of

app = typer.Typer(no_args_is_help=True, help="Throttle the copying of replicas, so that clients do not notice it.")
app.command(epilog="Example:\n\n  blockhouse topics throttle replay autothrottle.jsonl")(replay)


BrokerOption = Annotated[int | None, typer.Option("--broker", help="Only this broker.")]
Json = Annotated[bool, typer.Option("--json", help="Print JSON.")]


@app.command(epilog="Example:\n\n  blockhouse topics throttle status --bootstrap-server kafka:9092 --capacity 10Gbit/s")
def status(
    bootstrap_server: o.BootstrapServer = None,
    config: o.ConfigFile = None,
    kafka_cluster: o.KafkaName = None,
    capacity: t.CapacityOption = None,
    broker_capacity: t.BrokerCapacities = None,
    min_rate: t.MinRate = "10MB/s",
    state: t.StateFile = None,
    as_json: Json = False,
) -> None:
    """Show what moves, how fast each broker may copy, why, and what is left. Nothing is changed."""
    options = t.ThrottleOptions(capacity, tuple(broker_capacity or ()), min_rate, state=state)
    with _live(bootstrap_server, config, kafka_cluster) as fleet:
        store = t.store_of(fleet, options)
        throttler = t.throttler_for(fleet, options, store)
        throttler.round(change=False)
        _show(throttler.rows, store.ownership(), as_json=as_json)


@app.command(epilog="Example:\n\n  blockhouse topics throttle watch --bootstrap-server kafka:9092 --interval 5")
def watch(
    bootstrap_server: o.BootstrapServer = None,
    config: o.ConfigFile = None,
    kafka_cluster: o.KafkaName = None,
    capacity: t.CapacityOption = None,
    broker_capacity: t.BrokerCapacities = None,
    min_rate: t.MinRate = "10MB/s",
    interval: t.Interval = 10.0,
    state: t.StateFile = None,
    source: lo.Source = None,
    source_config: lo.SourceConfig = None,
    as_json: Json = False,
) -> None:
    """Show the same again and again, with the speed of each copy and when it will be done, until nothing moves."""
    options = t.ThrottleOptions(capacity, tuple(broker_capacity or ()), min_rate, interval=interval, state=state)
    cluster, settings = (
        _cluster(bootstrap_server, config, kafka_cluster),
        lo.chosen(source, source_config, None, None, None),
    )
    with KafkaFleet(cluster) as fleet, opened(settings, cluster) as loads, _stopping() as pause:
        store = t.store_of(fleet, options)
        throttler = t.throttler_for(fleet, options, store, loads=loads)
        while throttler.round(change=False) and throttler.rows:
            _show(throttler.rows, store.ownership(), as_json=as_json)
            if pause.wait(interval):
                return
        _show((), store.ownership(), as_json=as_json)


@app.command(
    "set",
    epilog="Examples:\n\n"
    "  blockhouse topics throttle set 50MB/s --bootstrap-server kafka:9092 --auto-remove\n\n"
    "  blockhouse topics throttle set 20MB/s --broker 1003 --expires 2h --bootstrap-server kafka:9092",
)
def set_rate(
    rate: Annotated[str, typer.Argument(help=f"Bytes a second with a unit: {EXAMPLES}.")],
    bootstrap_server: o.BootstrapServer = None,
    config: o.ConfigFile = None,
    kafka_cluster: o.KafkaName = None,
    broker: BrokerOption = None,
    auto_remove: Annotated[bool, typer.Option("--auto-remove", help="Forget it when nothing moves any more.")] = False,
    expires: Annotated[str | None, typer.Option(help="Forget it after 30m, 2h, 1d.")] = None,
    state: t.StateFile = None,
) -> None:
    """Fix the rate of all brokers, or of one, for what moves now and later: exactly, and at once.

    It is recorded, and followed by `throttle run` and `apply` on this machine until it is cleared or has ended. A
    broker that takes no part in any move is not throttled.
    """
    options = t.ThrottleOptions(state=state)
    until = time.time() + _duration(expires) if expires else None
    override = Override(_rate(rate), auto_remove, until)
    with _live(bootstrap_server, config, kafka_cluster) as fleet:
        if broker is not None and broker not in fleet.brokers():
            typer.echo(
                f"warning: broker {broker} is not alive; it gets the rate when it returns and takes part", err=True
            )
        store = t.store_of(fleet, options)
        store.override(broker, override)
        t.throttler_for(fleet, options, store, t.owned_targets(fleet, store)).round()
        typer.echo(f"recorded in {store.path}", err=True)


@app.command(
    epilog="Examples:\n\n"
    "  blockhouse topics throttle clear --bootstrap-server kafka:9092\n\n"
    "  blockhouse topics throttle clear --all --bootstrap-server kafka:9092"
)
def clear(
    bootstrap_server: o.BootstrapServer = None,
    config: o.ConfigFile = None,
    kafka_cluster: o.KafkaName = None,
    broker: BrokerOption = None,
    everything: Annotated[
        bool, typer.Option("--all", help="Every override, and every throttle of ours; moves continue unthrottled.")
    ] = False,
    adopt: t.Adopt = False,
    state: t.StateFile = None,
) -> None:
    """Forget the fixed rate of all brokers (or of one), so that rates follow the load again; or with --all remove ours.

    What another tool or person set stays, unless --adopt takes it for ours.
    """
    if everything and broker is not None:
        raise InvalidInput(["--all and --broker contradict each other: choose one"])
    options = t.ThrottleOptions(state=state, adopt=adopt)
    with _live(bootstrap_server, config, kafka_cluster) as fleet:
        store = t.store_of(fleet, options)
        if not everything:
            store.forget_override(broker)
            typer.echo(
                "forgotten; rates follow the load again from the next interval of 'throttle run' or 'apply'", err=True
            )
            return
        for id in (None, *store.overrides().brokers):
            store.forget_override(id)
        throttler = t.throttler_for(fleet, options, store)
        unconfirmed = throttler.clear(everything=adopt)
        while unconfirmed:
            time.sleep(CONFIRM_SECONDS)
            unconfirmed = throttler.clear()
        for place in sorted(store.ownership().rates):
            typer.echo(f"warning: broker {place[0]} is not alive, its {place[1]} rate stays until it returns", err=True)


@app.command(
    epilog="Examples:\n\n"
    "  blockhouse topics throttle run --bootstrap-server kafka:9092 --capacity 10Gbit/s\n\n"
    "  blockhouse topics throttle run --bootstrap-server kafka:9092 --capacity 10Gbit/s --until-done"
)
def run(
    bootstrap_server: o.BootstrapServer = None,
    config: o.ConfigFile = None,
    kafka_cluster: o.KafkaName = None,
    capacity: t.CapacityOption = None,
    broker_capacity: t.BrokerCapacities = None,
    min_rate: t.MinRate = "10MB/s",
    max_rate: t.MaxRate = None,
    share: t.Share = 0.9,
    interval: t.Interval = 30.0,
    state: t.StateFile = None,
    source: lo.Source = None,
    source_config: lo.SourceConfig = None,
    adopt: t.Adopt = False,
    until_done: Annotated[bool, typer.Option("--until-done", help="End when nothing moves any more.")] = False,
    http: t.HttpAddress = None,
    http_token_file: t.HttpToken = None,
) -> None:
    """Throttle whatever is reassigned, by this tool or another, to what clients leave of the capacity.

    It may end at any time: rates stay in Kafka, and the next run resumes from its record and cleans up.
    """
    options = t.ThrottleOptions(
        capacity, tuple(broker_capacity or ()), min_rate, max_rate, share, interval, state, adopt
    )
    console = Console()
    cluster, settings = (
        _cluster(bootstrap_server, config, kafka_cluster),
        lo.chosen(source, source_config, None, None, None),
    )
    listen = t.http_settings(http, http_token_file)
    with KafkaFleet(cluster) as fleet, opened(settings, cluster) as loads, _stopping() as pause:
        throttler = t.throttler_for(fleet, options, t.store_of(fleet, options), loads=loads)
        with answering(listen, t.store_of(fleet, options), throttler, pause.end):
            while True:
                again = t.attempt(throttler.round)
                if throttler.rows:
                    show_rows(console, throttler.rows)
                if (until_done and again is False) or pause.wait(interval):
                    return


@contextlib.contextmanager
def _live(bootstrap_server: str | None, config: Path | None, name: str | None) -> Iterator[KafkaFleet]:
    with KafkaFleet(_cluster(bootstrap_server, config, name)) as fleet:
        yield fleet


def _cluster(bootstrap_server: str | None, config: Path | None, name: str | None) -> KafkaCluster:
    cluster = find_kafka(bootstrap_server, config, name)
    if cluster is None:
        raise InvalidInput(["a live cluster is missing; give --bootstrap-server, or --config"])
    return cluster


@contextlib.contextmanager
def _stopping() -> Iterator[Pause]:
    """A pause that SIGINT and SIGTERM stop, so that no effect is cut without need."""
    pause = Pause()
    before = {number: signal.signal(number, lambda *_: pause.stop()) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield pause
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _show(rows: tuple[Any, ...], owned: Ownership, *, as_json: bool) -> None:
    if as_json:
        typer.echo(
            json.dumps(
                [{**asdict(replace(row, eta=_finite(row.eta))), "endless": row.eta == float("inf")} for row in rows]
            )
        )
        return
    if rows:
        show_rows(Console(), rows)
    elif owned:
        brokers = ", ".join(map(str, sorted({broker for broker, _ in owned.rates}))) or "none"
        typer.echo(
            f"nothing moves; throttles of ours are left (rates of brokers {brokers}): 'throttle run' removes them"
        )
    else:
        typer.echo("nothing moves, and no throttle of ours is set")


def _finite(eta: float | None) -> float | None:
    return None if eta == float("inf") else eta


def _rate(text: str) -> int:
    try:
        return rate_of(text)
    except ValueError as error:
        raise InvalidInput([str(error)]) from None


def _duration(text: str) -> float:
    try:
        return time_span(text)
    except ValueError as error:
        raise InvalidInput([f"--expires: {error}"]) from None
