"""What an audit found, for people: every word whole in 80 columns."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rich.box import SIMPLE_HEAD
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from blockhouse_aggregator.audit.produced import NO_TABLE
from blockhouse_aggregator.audit.report import AuditReport, TableResult
from blockhouse_aggregator.audit.values.report import ValuesReport


def render(report: AuditReport) -> RenderableType:
    """What Kafka has by table, what each replica has of it, the first offenders, and a verdict."""
    lines: list[RenderableType] = [_in_kafka(report), _on_replicas(report)]
    for table in report.tables:
        lines += _faults(table)
    if report.expired:
        lines.append(Text(f"{report.expired:,} stored rows are older than the logs: they could not be judged"))
    if report.manifest is not None:
        m = report.manifest
        lines.append(Text(f"manifest: {m.messages:,} messages, {m.lost:,} not in Kafka, {m.different:,} different"))
    if report.values is not None:
        lines += _values(report.values)
    lines.append(_verdict(report))
    return Group(*lines)


def _grid(title: str, names: Sequence[str], counts: Sequence[str]) -> Table:
    """An empty table. Where it is too wide a name continues on the next line, and no number does."""
    grid = Table(title=title, title_justify="left", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for name in names:
        grid.add_column(name, overflow="fold")
    for count in counts:
        grid.add_column(count, justify="right", no_wrap=True)
    return grid


def _marked(faults: int) -> str:
    """A number that should be 0."""
    return f"[red]{faults:,}[/red]" if faults else "0"


def _in_kafka(report: AuditReport) -> Table:
    grid = _grid(f"in Kafka: topic {report.topic}", ("table",), ("messages", "rows", "dead letters"))
    last = ""
    for t in sorted(report.tables, key=lambda result: result.table):
        if not grid.rows or t.table != last:
            grid.add_row(_shown(t.table), *(f"{n:,}" for n in (t.messages, t.rows, t.dead_letters)))
        last = t.table
    return grid


def _on_replicas(report: AuditReport) -> Table:
    grid = _grid("\non each replica", ("table", "replica"), ("stored", "duplicates", "missing", "unexpected"))
    for t in report.tables:
        faults = (_marked(n) for n in (t.duplicates, t.missing, t.unexpected))
        grid.add_row(_shown(t.table), t.replica, f"{t.stored:,}", *faults)
    return grid


def _faults(table: TableResult) -> Iterator[Text]:
    where = f"{_shown(table.table)} on {table.replica}"
    if not table.exact:
        absent = "" if table.exists or table.table == NO_TABLE else ": there is no such table"
        yield Text(f"{where}{absent}", style="bold")
        yield from (Text(f"  {offender}", no_wrap=True, overflow="ignore") for offender in table.offenders)
    for seen in _not_judged(table):
        yield Text(f"{where}: {seen}")


def _not_judged(table: TableResult) -> Iterator[str]:
    """What else the table holds, and what of its differences is no fault, in words."""
    if table.waiting:
        what = "its messages are at or above the committed offset"
        yield f"{table.waiting:,} of {table.missing:,} missing rows are not loaded yet: {what}"
    for name, rows in table.others.items():
        yield f"{rows:,} rows of another topic, {name}: not judged"
    if table.unnamed:
        text = "rows name no topic, and others of their offsets do: whose they are cannot be judged"
        yield f"{table.unnamed:,} {text}"
    if table.doubt.why:
        what = "differences" if table.doubt.of_all else "missing rows"
        yield f"{what} cannot be judged: {table.doubt.why}"


def _verdict(report: AuditReport) -> Text:
    if report.exact and report.open_letters:
        open_ones = f"{report.open_letters:,} dead letters that are open"
        what = "1 dead letter that is open" if report.open_letters == 1 else open_ones
        return Text(f"exact, but for {what}: blockhouse dlq list", style="bold yellow")
    if report.exact:
        return Text("exact: every row once on every replica", style="bold green")
    if report.compared_exact:
        compared = f"Kafka cluster {', '.join(report.clusters)}; replica {', '.join(report.replicas)}"
        rest = ", ".join(sorted(report.not_compared))
        return Text(f"exact in what was compared ({compared}). NOT COMPARED: {rest}", style="bold yellow")
    if report.undecided:
        return Text("CANNOT BE JUDGED: what differs may be right", style="bold yellow")
    if report.waits:
        text = "NOT EXACT YET: messages at or above the committed offset are not loaded yet, and nothing else differs"
        return Text(f"{text}: use --wait", style="bold yellow")
    return Text("NOT EXACT", style="bold red")


def _values(report: ValuesReport) -> Iterator[RenderableType]:
    title = f"values of {report.messages:,} of {report.of:,} messages"
    grid = _grid(title, ("table", "replica"), ("rows", "values", "wrong", "columns\nnot judged"))
    for t in report.tables:
        counts = (f"{t.rows:,}", f"{t.values:,}", _marked(t.wrong.total()), f"{len(t.columns):,}")
        grid.add_row(t.table, t.replica, *counts)
    yield grid
    for t in report.tables:
        if t.offenders or t.columns or t.rest:
            yield Text(f"{t.table} on {t.replica}", style="bold")
        yield from (Text(f"  {offender}", no_wrap=True, overflow="ignore") for offender in t.offenders)
        yield from (Text(f"  not judged: column {name}: {why}") for name, why in t.columns.items())
        yield from (Text(f"  not judged: {count:,} {what}") for what, count in t.rest.items())
    if report.exact:
        yield Text(f"{report.judged:,} values are as they were sent", style="bold green")
    else:
        yield Text("VALUES DIFFER" if report.judged else "NO VALUE JUDGED", style="bold red")


def _shown(table: str) -> str:
    return table or "(no table header)"
