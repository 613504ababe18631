"""Generate load: rows for any table of a pipeline, the same ones for the same seed, with a record of each message."""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from blockhouse.config.load import load
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import BlockhouseError
from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.produce.load import LoadResult, LoadSpec, generate
from blockhouse_aggregator.produce.pool import Kind, MessagePool

_HELP = """Send generated rows to the pipeline's topic, and record every message in a manifest.

The same seed gives the same messages. Tables and their columns come from the schema history, which the aggregators
write. Exit code 1 if a message was not acknowledged. Ctrl-C stops after what was sent is acknowledged.

Examples:

  blockhouse produce --config aggregator.yaml --messages 100000

  blockhouse produce --config aggregator.yaml --table db.clicks=100 --table db.audit=0.01 --rate 2000 --cluster a

  blockhouse produce --config aggregator.yaml --bad undecodable=0.001 --bad no-table=0.001 --manifest sent.jsonl
"""


def produce(
    config: Annotated[Path, typer.Option(help="YAML configuration of any aggregator of the shard.")],
    messages: Annotated[int, typer.Option(min=1, help="How many messages to send.")] = 10_000,
    rows_per_message: Annotated[int, typer.Option(min=1, help="Rows in each message.")] = 10,
    rate: Annotated[float, typer.Option(min=0, help="Messages per second; 0: as fast as possible.")] = 0,
    cluster: Annotated[list[str] | None, typer.Option(help="Kafka cluster to send to; default: all, evenly.")] = None,
    table: Annotated[
        list[str] | None, typer.Option(help="NAME or NAME=WEIGHT; default: every table of the pipeline.")
    ] = None,
    bad: Annotated[
        list[str] | None, typer.Option(help="KIND=SHARE: no-table, unknown-table, undecodable or wrong-type.")
    ] = None,
    seed: Annotated[int, typer.Option(min=0, help="Decides every row.")] = 1,
    manifest: Annotated[Path | None, typer.Option(help="File for one JSON line per acknowledged message.")] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to wait for the tables' schemas.")] = 30,
) -> None:
    settings = load(config)
    clusters = [c for c in settings.kafka.clusters if not cluster or c.name in cluster]
    unknown = set(cluster or ()) - {c.name for c in clusters}
    if unknown:
        raise typer.BadParameter(f"no Kafka cluster {', '.join(sorted(unknown))}", param_hint="--cluster")
    weights = {_full(name, settings): weight for name, weight in _shares(table or [], "--table").items()}
    kinds = {_kind(name): share for name, share in _shares(bad or [], "--bad").items()}
    tables = _schemas(settings, sorted(weights), wait)
    try:
        spec = LoadSpec(
            weights or {t.name: 1.0 for t in tables}, messages, rows_per_message, rate=rate, bad=kinds, seed=seed
        )
    except ValueError as error:
        raise typer.BadParameter(str(error)) from error
    pools = {t.name: MessagePool(t, seed) for t in tables}
    console = Console(stderr=True)
    with (
        _stop_on_interrupt() as stop,
        _progress(console, messages) as bar,
        manifest.open("w") if manifest else nullcontext() as lines,
    ):
        result = generate(
            spec,
            clusters,
            settings.kafka.topic,
            pools,
            manifest=lines,
            stop=stop.is_set,
            progress=lambda r: bar.update(bar.task_ids[0], completed=r.acknowledged, rows=r.rows),
        )
    _conclude(console, result, stopped=stop.is_set())


produce.__doc__ = _HELP


def _conclude(console: Console, result: LoadResult, *, stopped: bool) -> None:
    console.print(
        f"{result.acknowledged:,} messages acknowledged ({result.rows:,} rows, {result.bad:,} bad messages) in "
        f"{result.seconds:.1f} s: {result.acknowledged / max(result.seconds, 1e-9):,.0f} messages/s"
        + (", stopped early" if stopped else "")
    )
    if result.failed or result.acknowledged != result.sent:
        raise BlockhouseError(f"{result.sent - result.acknowledged:,} messages were not acknowledged by Kafka")


def _schemas(settings: AggregatorConfig, names: list[str], patience: float) -> list[TableHistory]:
    """Histories of the named tables (default: all there are), once each of them has a revision."""
    end = time.monotonic() + patience
    with Session(settings.zookeeper) as session:
        store = SchemaStore(session)
        while True:
            found = [table for table in store.all() if table.current is not None and (not names or table.name in names)]
            missing = set(names) - {table.name for table in found}
            if found and not missing:
                return found
            if time.monotonic() > end:
                raise BlockhouseError(
                    f"no schema of {', '.join(sorted(missing)) or 'any table'} in ZooKeeper below "
                    f"{settings.zookeeper.root}: create the tables and start an aggregator, which records them"
                )
            time.sleep(0.5)


def _shares(options: list[str], hint: str) -> dict[str, float]:
    """`NAME=NUMBER` options; a name alone counts 1."""
    shares: dict[str, float] = {}
    for option in options:
        name, _, number = option.partition("=")
        try:
            shares[name] = float(number or 1)
        except ValueError:
            raise typer.BadParameter(f"{number!r} is not a number", param_hint=hint) from None
    return shares


def _kind(name: str) -> Kind:
    kinds = [kind.value for kind in Kind if kind is not Kind.GOOD]
    if name not in kinds:
        raise typer.BadParameter(f"{name!r} is none of {', '.join(kinds)}", param_hint="--bad")
    return Kind(name)


def _full(name: str, settings: AggregatorConfig) -> str:
    return name if "." in name else f"{settings.clickhouse.database}.{name}"


def _progress(console: Console, messages: int) -> Progress:
    bar = Progress(
        TextColumn("producing"),
        BarColumn(),
        TextColumn("{task.completed:,} of {task.total:,} messages, {task.fields[rows]:,} rows"),
        TimeElapsedColumn(),
        console=console,
    )
    bar.add_task("produce", total=messages, rows=0)
    return bar


@contextmanager
def _stop_on_interrupt() -> Iterator[threading.Event]:
    """The first Ctrl-C (or SIGTERM) asks for an orderly end, the second one ends at once."""
    stop = threading.Event()

    def ask(number: int, _frame: object) -> None:
        stop.set()
        signal.signal(number, signal.default_int_handler)

    before = {number: signal.signal(number, ask) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
