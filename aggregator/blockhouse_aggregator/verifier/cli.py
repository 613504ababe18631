"""Run a verifier, or check Kafka's history of commits once."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import structlog
import typer
import yaml
from rich.table import Table

from blockhouse.cli.tables import Wide, print_table
from blockhouse.config.load import load, load_as
from blockhouse.config.units import seconds
from blockhouse.config.verifier import VerifierConfig
from blockhouse.contract.verifier import HistoryCoverage
from blockhouse_aggregator.verifier.anomaly import Anomaly
from blockhouse_aggregator.verifier.history import Line

app = typer.Typer(no_args_is_help=True, help="The verifier: proves that no stream lost or doubled anything.")

Config = Annotated[
    Path, typer.Option("--config", "-c", help="YAML configuration of the verifier, or of any aggregator of the shard.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]
NOT_ALL = 2
"""Exit code: what is shown is right, and not all there is."""


@app.callback()
def _group() -> None:
    """The verifier: proves that no stream lost or doubled anything."""


@app.command()
def run(
    config: Annotated[Path, typer.Option("--config", "-c", help="The YAML file of docs/verifier.md.")],
    ignore_unknown: Annotated[
        bool, typer.Option("--ignore-unknown", help="Log fields of a newer version instead of refusing them.")
    ] = False,
) -> None:
    """Watch every commit of the pipeline until SIGTERM, and answer /verdict, /anomalies and /metrics.

    Example: blockhouse verifier run --config verifier.yaml

    Exit codes: 0 stopped in order, 2 wrong configuration, 71 something only a restart fixes.
    """
    unknown: list[str] = []
    settings = load_as(VerifierConfig, config, unknown.append if ignore_unknown else None)
    from blockhouse_aggregator.verifier.logs import configure
    from blockhouse_aggregator.verifier.service import Verifier

    configure(settings.log_format, settings.log_level)
    for field in unknown:
        structlog.get_logger(__name__).warning("config.unknown_field", field=field, file=str(config))
    raise typer.Exit(asyncio.run(Verifier(settings).run()))


def verify(
    config: Config,
    since: Annotated[str, typer.Option(help="How far back: 30m, 6h, 2d, or a time such as 2026-11-21T09:00Z.")] = "",
    as_json: AsJson = False,
) -> None:
    """Judge what was committed, once: every commit of the pipeline that Kafka still has, or those SINCE a time.

    Exit codes: 0 no anomaly; 1 anomalies, which are printed; 2 no anomaly in what could be read, but a cluster could
    not be read to its end, which is named; or wrong usage.

    Examples:

      blockhouse verify --config verifier.yaml

      blockhouse verify --config aggregator.yaml --since 6h --json
    """
    settings = settings_of(config)
    from blockhouse_aggregator.verifier.coverage import history_coverage
    from blockhouse_aggregator.verifier.past import Report
    from blockhouse_aggregator.verifier.past import verify as look

    report: Report = look(settings, _since(since))
    names = settings.table_names
    if as_json:
        typer.echo(json.dumps(report.to_json(names), indent=2))
    else:
        _print_coverage({name: history_coverage(streams) for name, streams in report.clusters.items()})
        _print_anomalies(report.anomalies, names)
        verdicts = {
            "clean": "clean: no anomaly",
            "anomalies": f"NOT CLEAN: {len(report.anomalies)} anomalies",
            "unknown": "NOT PROVED: no anomaly in what was read",
        }
        typer.echo(verdicts[report.verdict])
    _print_problems("not judged", report.problems)
    raise typer.Exit({"clean": 0, "anomalies": 1, "unknown": NOT_ALL}[report.verdict])


def history(
    stream: Annotated[str, typer.Argument(help="cluster/topic/partition; * and ? stand for anything.")],
    config: Config,
    since: Annotated[str, typer.Option(help="How far back: 30m, 6h, 2d, or a time such as 2026-11-21T09:00Z.")] = "",
    last: Annotated[int, typer.Option(min=1, help="Print at most so many commits, the newest.")] = 200,
    as_json: AsJson = False,
    wide: Wide = False,
) -> None:
    """The story of a stream: every commit that Kafka still has, what it changed, and what is wrong with it.

    Several streams are merged by the times of their commits; `skewWindow` allows for clocks that differ. Exit code 2
    when a cluster could not be read to its end; what is read of it and of the others is shown.

    Example: blockhouse streams history a/events-01/3 --config aggregator.yaml --since 1h
    """
    settings = settings_of(config)
    problems: list[str] = []
    lines = list(_lines(settings, stream, _since(since), problems))[-last:]
    if as_json:
        for at, name, line in lines:
            typer.echo(json.dumps({"at": at, "stream": name, **{k: getattr(line, k) for k in line.__slots__}}))
    else:
        _print_lines(lines, wide=wide)
    _print_problems("not shown", problems)
    if problems:
        raise typer.Exit(NOT_ALL)


def _print_problems(what: str, problems: Sequence[str]) -> None:
    for problem in problems:
        typer.secho(f"{what}: {problem}", fg=typer.colors.RED, err=True)


def _print_lines(lines: Sequence[tuple[str, str, Line]], *, wide: bool) -> None:
    table = Table("time", "stream", "number", "writer", "offset", "position", "counts", "changes")
    for at, name, line in lines:
        text = "\n".join((*line.changes, *(f"[red]{finding}[/red]" for finding in line.findings)))
        table.add_row(at, name, line.number, line.writer, str(line.offset), line.position, line.counts, text)
    print_table(table, wide=wide)
    typer.echo(f"{len(lines)} commits")


def _print_anomalies(anomalies: Sequence[Anomaly], names: dict[str, str]) -> None:
    for anomaly in anomalies:
        report_of = anomaly.report(names)
        table = f" {report_of.table}" if report_of.table else ""
        where = f"{report_of.stream}{table} [{report_of.first}, {report_of.last}]"
        typer.echo(f"{report_of.at} {report_of.kind} {where}: {report_of.message}")
        typer.echo(f"  before {report_of.before}\n  after  {report_of.after}")


def settings_of(path: Path) -> VerifierConfig:
    """The settings in a verifier's file, or those that an aggregator's file implies. Raises ConfigError."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        content = None  # the loader reports it properly
    if not isinstance(content, dict) or "shard" not in content:
        return load_as(VerifierConfig, path)
    aggregator = load(path)
    return VerifierConfig(
        pipeline=aggregator.pipeline,
        groups=(aggregator.kafka.group,),
        topics=(aggregator.kafka.topic,),
        clusters=aggregator.kafka.clusters,
    )


def _since(text: str) -> int | None:
    """Unix milliseconds."""
    if not text:
        return None
    with suppress(ValueError):
        ago = 24 * seconds(f"{text[:-1]}h") if text.endswith("d") else seconds(text)
        return int((time.time() - ago) * 1000)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is neither like 6h nor a time", param_hint="--since") from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _lines(
    settings: VerifierConfig, pattern: str, since_ms: int | None, problems: list[str]
) -> Iterator[tuple[str, str, Line]]:
    from blockhouse_aggregator.verifier.anomaly import iso
    from blockhouse_aggregator.verifier.past import commits_of
    from blockhouse_aggregator.verifier.timeline import merge

    def requested(stream: str) -> bool:
        return fnmatchcase(stream, pattern)

    commits = commits_of(settings, requested, since_ms, problems)
    for at_ms, (name, line) in merge(commits, int(settings.skew_window * 1000)):
        yield iso(at_ms), name, line


def _print_coverage(clusters: Mapping[str, HistoryCoverage]) -> None:
    table = Table(
        "cluster", "partitions", "streams", "commits", "unseen", "missingRecords", "tombstones", "earliest", "latest"
    )
    for name, seen in clusters.items():
        cells = (seen.partitions, seen.streams, seen.commits, seen.unseen, seen.missing_records, seen.tombstones)
        table.add_row(name, *map(str, (*cells, seen.earliest, seen.latest)))
    print_table(table)
