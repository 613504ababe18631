"""Load again what a table lacks of a range of a stream: rows of a lost part, or of deleted ones."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from blockhouse.cli.tables import print_table
from blockhouse.config.load import load
from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import BlockhouseError
from blockhouse.streams import StreamId
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.removals import ROWS_REMOVED
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.kafka.facts import ClusterFacts
from blockhouse_aggregator.repair.filling import Refused
from blockhouse_aggregator.repair.judging import Verdict
from blockhouse_aggregator.repair.loading import load as load_missing
from blockhouse_aggregator.repair.report import RepairReport
from blockhouse_aggregator.repair.standing import RepairRefused, Standing, standing
from blockhouse_aggregator.repair.survey import VIEWS, Survey, Surveyed

_HELP = """Load again the messages of a range whose rows a table does not have; without --execute only show them.

For rows that were acknowledged and are gone, as when every replica lost a part with its power, or that a person deleted
and needs after all. The range is [--from, --to) of one stream, --to at most where the group has committed; times are
those of the messages, in ISO form, UTC unless they name another zone. Rows are looked for by the provenance columns,
and again under the table's lock right before an insert, so that it may run beside the aggregators, be killed, and be
run again.

Not loaded are messages that are dead-lettered, that the stream's owner is not done with yet (which is shown, and no
fault), and those of tables that do not show what is stored. Tables whose rows may have been removed on purpose (TTL,
DELETE) need --resurrect, and those with materialized views, which would get the rows twice, --despite-views.

Exit code 0: nothing is missing, or all of it was loaded; 1: something is missing; 2: wrong usage; 3: refused, or not
everything can be judged.

Examples:

  blockhouse repair a/events-01/3 --from 120000 --to 180000 --config aggregator.yaml

  blockhouse repair a/events-01/3 --from 120000 --to 180000 --table db.clicks --config aggregator.yaml --execute

  blockhouse repair a/events-01/3 --from-time 2026-11-25T06:00 --config aggregator.yaml --json
"""


def repair(
    stream: Annotated[str, typer.Argument(help="cluster/topic/partition")],
    config: Annotated[Path, typer.Option("--config", "-c", help="YAML configuration of an aggregator of the shard.")],
    begin: Annotated[int | None, typer.Option("--from", min=0, help="First offset.")] = None,
    end: Annotated[int | None, typer.Option("--to", min=0, help="The offset behind the last.")] = None,
    from_time: Annotated[str | None, typer.Option(help="From the first message of this time on.")] = None,
    to_time: Annotated[str | None, typer.Option(help="Up to it; default: what is committed.")] = None,
    table: Annotated[str, typer.Option(help="Only this table; `database.table`, or one of the database.")] = "",
    execute: Annotated[bool, typer.Option("--execute", help="Load what is missing.")] = False,
    resurrect: Annotated[bool, typer.Option("--resurrect", help="Also what a TTL or DELETE may have removed.")] = False,
    despite_views: Annotated[
        bool, typer.Option("--despite-views", help="Also tables whose views get the rows again.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    settings = load(config)
    asked = _stream(stream)
    if (begin is None) == (from_time is None):
        raise typer.BadParameter("give either --from or --from-time", param_hint="--from")
    if end is not None and to_time is not None:
        raise typer.BadParameter("give either --to or --to-time", param_hint="--to")
    name = table if "." in table or not table else f"{settings.clickhouse.database}.{table}"
    despite = frozenset({ROWS_REMOVED} if resurrect else ()) | frozenset({VIEWS} if despite_views else ())
    try:
        with Session(settings.zookeeper) as session, Replica(settings.clickhouse, timeout=120) as replica:
            now = standing(settings, session, asked)
            bounds = _bounds(now, (begin, from_time), (end, to_time))
            work = _Work(settings, session, replica, name, despite)
            report = work.repair(now, *bounds) if execute else work.look(now, *bounds)
    except RepairRefused:
        raise
    except BlockhouseError as error:
        raise RepairRefused(f"the repair could not be done: {error}") from error
    _print(report, as_json=as_json)
    raise typer.Exit(report.exit_code)


repair.__doc__ = _HELP


class _Work:
    """Looks and loads, and shows how far it is."""

    def __init__(
        self, settings: AggregatorConfig, session: Session, replica: Replica, table: str, despite: frozenset[str]
    ) -> None:
        self._settings, self._session, self._replica = settings, session, replica
        self._table, self._despite = table, despite

    def look(self, now: Standing, begin: int, end: int) -> RepairReport:
        """How the range is."""
        return RepairReport(now, begin, self._survey(now, begin, end))

    def repair(self, now: Standing, begin: int, end: int) -> RepairReport:
        """Load what is missing, and look again."""
        found = self._survey(now, begin, end)
        missing = {table.table: table.messages.count(Verdict.MISSING) for table in found.judged}
        refused: Sequence[Refused] = ()
        if any(missing.values()):
            with _shown("messages loaded", sum(missing.values())) as (bar, task):
                refused = asyncio.run(
                    load_missing(self._settings, self._session, found, now, lambda count: bar.advance(task, count))
                )
        after = self._survey(standing(self._settings, self._session, now.stream), begin, end)
        return RepairReport(now, begin, after, missing, refused)

    def _survey(self, now: Standing, begin: int, end: int) -> Surveyed:
        survey = Survey(self._settings, self._session, now, self._replica, self._table, self._despite)
        first = min(max(begin, now.log_begin), end)
        with _shown("offsets compared", end - first) as (bar, task):
            found = survey.look(first, end, lambda done: bar.update(task, completed=done))
        if self._table and not any(each.table == self._table for each in found.judged):
            raise RepairRefused(f"no message of table {self._table} is in {now.stream} [{first}, {end})")
        return found


@contextmanager
def _shown(what: str, total: int) -> Iterator[tuple[Progress, TaskID]]:
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    with Progress(*columns, console=Console(stderr=True), transient=True) as shown:
        yield shown, shown.add_task(what, total=total)


def _stream(text: str) -> StreamId:
    try:
        return StreamId.parse(text)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="STREAM") from error


def _milliseconds(text: str) -> int:
    """Unix time of an ISO time, in UTC unless it names another zone."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise typer.BadParameter(f"{text!r} is no ISO time, such as 2026-11-25T06:00", param_hint="TIME") from error
    aware = moment if moment.tzinfo is not None else moment.replace(tzinfo=UTC)
    return int(aware.timestamp() * 1000)


def _bounds(
    now: Standing,
    first: tuple[int | None, str | None],
    last: tuple[int | None, str | None],
) -> tuple[int, int]:
    """The range asked for. Raises RepairRefused when it is above what is committed."""
    facts = ClusterFacts(now.cluster)

    def resolved(offset: int | None, moment: str | None) -> int | None:
        return offset if moment is None else facts.offset_at(now.stream, _milliseconds(moment))

    begin, end = resolved(*first), resolved(*last)
    assert begin is not None  # one of the two was given
    end = now.position if end is None else end
    if end > now.position:
        text = f"{now.stream}: [{begin}, {end}) ends above {now.position}, up to where the group has committed"
        raise RepairRefused(f"{text}: its owner loads the rest; leave --to out to end there")
    if begin >= end:
        raise typer.BadParameter(f"[{begin}, {end}) holds no offset", param_hint="--from")
    return begin, end


def _print(report: RepairReport, *, as_json: bool) -> None:
    if as_json:
        typer.echo(json.dumps(report.to_json(), indent=2))
        return
    print_table(report.render())
    for line in report.lines():
        typer.echo(line)
    if report.before is None and any(table.missing for table in report.found.judged):
        typer.echo("Nothing was loaded; add --execute to do it.")
