"""Run a verifier, or look once at what Kafka's history of commits says."""

from __future__ import annotations

import asyncio
import json
import re
import sys
import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated

import structlog
import typer
import yaml
from rich.console import Console
from rich.table import Table

from blockhouse.config.load import load, load_as
from blockhouse.config.verifier import VerifierConfig
from blockhouse_aggregator.verifier.history import Line

app = typer.Typer(no_args_is_help=True, help="The verifier: proves that no stream lost or doubled anything.")

_WIDTH = 180
"""Columns when the output is no terminal: no name should be cut there."""
_AGO = re.compile(r"(\d+(?:\.\d+)?)(s|m|h|d)")
_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86400}

Config = Annotated[
    Path, typer.Option("--config", "-c", help="YAML configuration of the verifier, or of any aggregator of the shard.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON.")]


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

    Exit codes: 0 stopped in order, 2 wrong configuration, 71 something only a restart mends.
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

    Exit codes: 0 no anomaly; 1 anomalies, which are printed; 2 a cluster could not be read to its end, or wrong usage.

    Examples:

      blockhouse verify --config verifier.yaml

      blockhouse verify --config aggregator.yaml --since 6h --json
    """
    settings = settings_of(config)
    from blockhouse_aggregator.verifier.past import Report, coverage
    from blockhouse_aggregator.verifier.past import verify as look

    report: Report = look(settings, _since(since))
    names = settings.table_names
    if as_json:
        typer.echo(json.dumps(report.to_json(names), indent=2))
    else:
        _print_coverage({name: coverage(streams) for name, streams in report.clusters.items()})
        for anomaly in report.anomalies:
            said = anomaly.to_json(names)
            where = f"{said['stream']}{' ' + said['table'] if said['table'] else ''} [{said['first']}, {said['last']}]"
            typer.echo(f"{said['at']} {said['kind']} {where}: {said['message']}")
            typer.echo(f"  before {said['before']}\n  after  {said['after']}")
        typer.echo("clean: no anomaly" if report.clean else f"NOT CLEAN: {len(report.anomalies)} anomalies")
    if not report.clean:
        raise typer.Exit(1)


def history(
    stream: Annotated[str, typer.Argument(help="cluster/topic/partition; * and ? stand for anything.")],
    config: Config,
    since: Annotated[str, typer.Option(help="How far back: 30m, 6h, 2d, or a time such as 2026-11-21T09:00Z.")] = "",
    last: Annotated[int, typer.Option(min=1, help="Print at most so many commits, the newest.")] = 200,
    as_json: AsJson = False,
) -> None:
    """The story of a stream: every commit that Kafka still has, what it changed, and what is wrong with it.

    Several streams are merged by the times of their commits; `skewWindow` allows for clocks that differ.

    Example: blockhouse streams history a/events-01/3 --config aggregator.yaml --since 1h
    """
    settings = settings_of(config)
    lines = list(_lines(settings, stream, _since(since)))[-last:]
    if as_json:
        for at, name, line in lines:
            typer.echo(json.dumps({"at": at, "stream": name, **{k: getattr(line, k) for k in line.__slots__}}))
        return
    table = Table("time", "stream", "number", "writer", "offset", "position", "counts", "changes")
    for at, name, line in lines:
        text = "\n".join((*line.changes, *(f"[red]{finding}[/red]" for finding in line.findings)))
        table.add_row(at, name, line.number, line.writer, str(line.offset), line.position, line.counts, text)
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(table)
    typer.echo(f"{len(lines)} commits")


def settings_of(path: Path) -> VerifierConfig:
    """The settings in a verifier's file, or those that an aggregator's file implies. Raises ConfigError."""
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError):
        content = None  # said properly by the loader
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
    if ago := _AGO.fullmatch(text):
        return int((time.time() - float(ago[1]) * _SECONDS[ago[2]]) * 1000)
    try:
        at = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is neither like 6h nor a time", param_hint="--since") from error
    return int((at if at.tzinfo else at.replace(tzinfo=UTC)).timestamp() * 1000)


def _lines(settings: VerifierConfig, pattern: str, since_ms: int | None) -> Iterator[tuple[str, str, Line]]:
    from blockhouse_aggregator.verifier.anomaly import iso
    from blockhouse_aggregator.verifier.past import commits_of
    from blockhouse_aggregator.verifier.timeline import merge

    def wanted(stream: str) -> bool:
        return fnmatchcase(stream, pattern)

    commits = commits_of(settings, wanted, since_ms)
    for at_ms, (name, line) in merge(commits, int(settings.skew_window * 1000)):
        yield iso(at_ms), name, line


def _print_coverage(clusters: Mapping[str, Mapping[str, object]]) -> None:
    shown = ("partitions", "streams", "commits", "unseen", "missingRecords", "tombstones", "earliest", "latest")
    table = Table("cluster", *shown)
    for name, seen in clusters.items():
        table.add_row(name, *(str(seen[key]) for key in shown))
    Console(width=None if sys.stdout.isatty() else _WIDTH).print(table)
