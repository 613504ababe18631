"""Compare Kafka itself with every ClickHouse replica: every row exactly once, or which ones are not."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from blockhouse.cli.tables import output_console
from blockhouse.config.endpoints import ClickHouse
from blockhouse.config.load import load
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import BlockhouseError
from blockhouse_aggregator.audit.auditing import AuditImpossible, AuditSpec, run
from blockhouse_aggregator.audit.places import of_reachable, of_shard
from blockhouse_aggregator.audit.rendering import render
from blockhouse_aggregator.audit.report import AuditReport
from blockhouse_aggregator.audit.sampling import SampledAudit, Window, watch
from blockhouse_aggregator.audit.values import ValuesSpec
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session

_HELP = """Compare what Kafka holds with what every ClickHouse replica holds, message by message.

Reads the whole topic of every cluster, the dead-letter topic, and the provenance columns of every table on every
replica. Run it when nothing is being produced, or with --wait: rows of messages at or above the group's committed
offset are not loaded yet, and missing until they are. Exit code 0: exact on every replica; 1: not; 3: it could not be
done, because a cluster or a replica is not reachable; what is reachable is compared all the same, and the rest is
named; or all that differs may be right, as where a TTL removes rows. Without --replica, the replica of the
configuration names the others of its shard.

With --values every stored value is compared with the one that was sent, column by column, by reading the messages
again on another path than the aggregators; --sample N takes about N messages of each table in place of all.

With --continuous it takes windows of offsets by chance, from what the group has committed, and compares these,
ever or --for SECONDS. Exit code 1 as soon as it has ended and one window differed; 3: no window could be compared.

Examples:

  blockhouse audit --config aggregator.yaml --continuous --every 10 --window 2000 --replica ch-1:9000 --json

  blockhouse audit --config aggregator.yaml --replica ch-1:9000 --replica ch-2:9000

  blockhouse audit --config aggregator.yaml --replica ch-1:9000 --values --sample 10000

  blockhouse audit --config aggregator.yaml --manifest sent.jsonl --wait 60 --json
"""


def audit(
    config: Annotated[Path, typer.Option(help="YAML configuration of any aggregator of the shard.")],
    replica: Annotated[
        list[str] | None, typer.Option(help="HOST:PORT of a replica; default: every replica of the shard.")
    ] = None,
    manifest: Annotated[Path | None, typer.Option(help="What `blockhouse produce --manifest` wrote.")] = None,
    ignore_table: Annotated[list[str] | None, typer.Option(help="Table to leave out.")] = None,
    wait: Annotated[float, typer.Option(min=0, help="Seconds to try again until exact.")] = 0,
    values: Annotated[bool, typer.Option("--values", help="Compare every stored value with the one sent.")] = False,
    sample: Annotated[
        int | None, typer.Option(min=1, help="With --values: about so many messages of each table, not all.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    continuous: Annotated[bool, typer.Option("--continuous", help="Compare windows by chance, until stopped.")] = False,
    every: Annotated[float, typer.Option(min=0, help="Seconds between two windows.")] = 10,
    window: Annotated[int, typer.Option(min=1, help="Offsets in a window.")] = 1_000,
    seconds: Annotated[float | None, typer.Option("--for", min=0, help="End after so many seconds.")] = None,
    grace: Annotated[float, typer.Option(min=0, help="Seconds a window may differ before it counts.")] = 30,
) -> None:
    settings = load(config)
    if sample is not None and not values:
        raise typer.BadParameter("it is for --values", param_hint="--sample")
    if values and continuous:
        raise typer.BadParameter("--continuous compares no values", param_hint="--values")
    spec = AuditSpec(
        clusters=settings.kafka.clusters,
        topic=settings.kafka.topic,
        replicas=_replicas(replica or (), settings.clickhouse),
        database=settings.clickhouse.database,
        dead_letter_topic=settings.kafka.dead_letters,
        manifest=manifest,
        ignore_tables=frozenset(_full(name, settings) for name in ignore_table or ()),
        wait=wait,
        group=settings.kafka.group,
        values=_values(settings, sample) if values else None,
    )
    if continuous:
        raise typer.Exit(_watch(spec, settings, as_json, every=every, size=window, seconds=seconds, grace=grace))
    raise typer.Exit(_once(spec, as_json))


audit.__doc__ = _HELP


def _once(spec: AuditSpec, as_json: bool) -> int:
    """Compare what is reachable, print the result; returns the exit code."""
    spec, left_out = of_reachable(spec)
    report = replace(_run(spec), not_compared=left_out)
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
    else:
        output_console().print(render(report), crop=False)  # a line about a message is whole, whatever the width
    return _exit_code(report)


def _run(spec: AuditSpec) -> AuditReport:
    """The report, with what is being done shown on stderr."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        task = shown.add_task("reading Kafka and ClickHouse", total=None)

        def judging(done: int, of: int) -> None:
            shown.update(task, description="messages compared", completed=done, total=of)

        return run(spec, progress=lambda found: shown.update(task, description=_summary(found)), judging=judging)


def _values(settings: AggregatorConfig, sample: int | None) -> ValuesSpec:
    """Raises AuditImpossible when the schema history cannot be read."""
    try:
        with Session(settings.zookeeper) as session:
            return ValuesSpec({history.name: history for history in SchemaStore(session).all()}, sample)
    except BlockhouseError as error:
        raise AuditImpossible(f"the schema history could not be read: {error}") from error


def _exit_code(report: AuditReport) -> int:
    """What was not compared is named, and is no proof."""
    for name, why in sorted(report.not_compared.items()):
        typer.secho(f"NOT COMPARED: {name}: {why}", fg=typer.colors.RED, err=True)
    if report.exact:
        return 0
    return 3 if report.undecided else 1


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

    def report(found: Window) -> None:
        if as_json:
            typer.echo(json.dumps(found.to_json()))
            return
        typer.echo(f"{found.stream} [{found.begin}, {found.end}): {_verdict(found)}")
        for table in found.tables:
            for offender in table.offenders:
                typer.echo(f"  {table.table} on {table.replica}: {offender}")

    def excuse(error: BlockhouseError) -> None:
        typer.echo(f"not compared: {error}", err=True)

    with SampledAudit(spec, settings.kafka.group, size=size, grace=grace, random=Random()) as sampled:
        compared, wrong = watch(sampled, every=every, seconds=seconds, report=report, excuse=excuse)
    typer.echo(f"{compared} windows compared, {wrong} not exact", err=True)
    return 1 if wrong else 0 if compared else 3


def _verdict(window: Window) -> str:
    if window.undecided:
        return "CANNOT BE JUDGED"
    return "exact" if window.exact else "NOT EXACT"


def _summary(report: AuditReport) -> str:
    missing, duplicates = sum(t.missing for t in report.tables), sum(t.duplicates for t in report.tables)
    waiting, unexpected = sum(t.waiting for t in report.tables), sum(t.unexpected for t in report.tables)
    missed = f"{missing:,} rows missing ({waiting:,} not loaded yet)"
    return f"not exact yet: {missed}, {duplicates:,} duplicates, {unexpected:,} unexpected; trying again"


def _replicas(texts: Sequence[str], like: ClickHouse) -> tuple[ClickHouse, ...]:
    return tuple(_replica(text, like) for text in texts) or of_shard(like)


def _replica(text: str, like: ClickHouse) -> ClickHouse:
    """The replica at `HOST:PORT`, with user, password and TLS of the configuration's own."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65536:
        raise typer.BadParameter(f"{text!r} is not HOST:PORT", param_hint="--replica")
    return like.model_copy(update={"host": host.strip("[]"), "port": int(port)})


def _full(name: str, settings: AggregatorConfig) -> str:
    return name if "." in name else f"{settings.clickhouse.database}.{name}"
