"""Compare Kafka itself with every ClickHouse replica: every row exactly once, or which ones are not."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from rich.console import Console

from blockhouse.config.endpoints import ClickHouse
from blockhouse.config.load import load
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import BlockhouseError
from blockhouse_aggregator.audit.auditing import AuditSpec, run
from blockhouse_aggregator.audit.report import AuditReport
from blockhouse_aggregator.audit.sampling import SampledAudit, Window, watch

_WIDTH = 160
"""Columns when the output is a file: no name should be cut there."""

_HELP = """Compare what Kafka holds with what every ClickHouse replica holds, message by message.

Reads the whole topic of every cluster, the dead-letter topic, and the provenance columns of every table on every
replica. Run it when nothing is being produced, or with --wait. Exit code 0: exact on every replica; 1: not; 3: it
could not be done, because a cluster or a replica is not reachable.

With --continuous it takes windows of offsets by chance, from what the group has committed, and compares these, for
ever or --for SECONDS. Exit code 1 as soon as it has ended and one window differed; 3: no window could be compared.

Examples:

  blockhouse audit --config aggregator.yaml --continuous --every 10 --window 2000 --replica ch-1:9000 --json

  blockhouse audit --config aggregator.yaml --replica ch-1:9000 --replica ch-2:9000

  blockhouse audit --config aggregator.yaml --manifest sent.jsonl --wait 60 --json
"""


def audit(
    config: Annotated[Path, typer.Option(help="YAML configuration of any aggregator of the shard.")],
    replica: Annotated[
        list[str] | None, typer.Option(help="HOST:PORT of a replica; default: the one of the configuration.")
    ] = None,
    manifest: Annotated[Path | None, typer.Option(help="What `blockhouse produce --manifest` wrote.")] = None,
    ignore_table: Annotated[list[str] | None, typer.Option(help="Table to leave out.")] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to try again until exact.")] = 0,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    continuous: Annotated[bool, typer.Option("--continuous", help="Compare windows by chance, for ever.")] = False,
    every: Annotated[float, typer.Option(min=0, help="Seconds between two windows.")] = 10,
    window: Annotated[int, typer.Option(min=1, help="Offsets in a window.")] = 1_000,
    seconds: Annotated[float | None, typer.Option("--for", min=0, help="End after so many seconds.")] = None,
    grace: Annotated[float, typer.Option(min=0, help="Seconds a window may differ before it counts.")] = 30,
) -> None:
    settings = load(config)
    spec = AuditSpec(
        clusters=settings.kafka.clusters,
        topic=settings.kafka.topic,
        replicas=tuple(_replica(text, settings.clickhouse) for text in replica or ()) or (settings.clickhouse,),
        database=settings.clickhouse.database,
        dead_letter_topic=settings.kafka.dead_letters,
        manifest=manifest,
        ignore_tables=frozenset(_full(name, settings) for name in ignore_table or ()),
        wait=wait,
    )
    if continuous:
        raise typer.Exit(_watch(spec, settings, as_json, every=every, size=window, seconds=seconds, grace=grace))
    waiting = Console(stderr=True)
    with waiting.status("reading Kafka and ClickHouse") as status:
        report = run(spec, progress=lambda found: status.update(_summary(found)))
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        Console(width=None if sys.stdout.isatty() else _WIDTH).print(report.render())
    if not report.exact:
        raise typer.Exit(1)


audit.__doc__ = _HELP


def _watch(
    spec: AuditSpec,
    settings: AggregatorConfig,
    as_json: bool,
    *,
    every: float,
    size: int,
    seconds: float | None,
    grace: float,
) -> int:
    """The exit code: 0, 1 when a window differed, 3 when none could be compared."""

    def tell(found: Window) -> None:
        if as_json:
            typer.echo(json.dumps(found.to_json()))
            return
        typer.echo(f"{found.stream} [{found.begin}, {found.end}): {'exact' if found.exact else 'NOT EXACT'}")
        for table in found.tables:
            for offender in table.offenders:
                typer.echo(f"  {table.table} on {table.replica}: {offender}")

    def excuse(error: BlockhouseError) -> None:
        typer.echo(f"not compared: {error}", err=True)

    with SampledAudit(spec, settings.kafka.group, size=size, grace=grace, random=Random()) as sampled:
        compared, wrong = watch(sampled, every=every, seconds=seconds, tell=tell, excuse=excuse)
    typer.echo(f"{compared} windows compared, {wrong} not exact", err=True)
    return 1 if wrong else 0 if compared else 3


def _summary(report: AuditReport) -> str:
    missing, duplicates = sum(t.missing for t in report.tables), sum(t.duplicates for t in report.tables)
    unexpected = sum(t.unexpected for t in report.tables)
    return (
        f"not exact yet: {missing:,} rows missing, {duplicates:,} duplicates, {unexpected:,} unexpected; trying again"
    )


def _replica(text: str, like: ClickHouse) -> ClickHouse:
    """The replica at `HOST:PORT`, with user, password and TLS of the configuration's own."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--replica")
    return like.model_copy(update={"host": host.strip("[]"), "port": int(port)})


def _full(name: str, settings: AggregatorConfig) -> str:
    return name if "." in name else f"{settings.clickhouse.database}.{name}"
