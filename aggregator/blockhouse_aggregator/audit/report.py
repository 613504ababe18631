"""What an audit found, for people (`render`) and for programs (`to_json`). Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from blockhouse.streams import StreamId
from blockhouse_aggregator.audit.compare import Difference, Example
from blockhouse_aggregator.audit.doubts import NONE, Doubt
from blockhouse_aggregator.audit.manifest import ManifestResult
from blockhouse_aggregator.audit.produced import NO_TABLE
from blockhouse_aggregator.audit.values.report import ValuesReport

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Offender:
    stream: StreamId
    example: Example

    def __str__(self) -> str:
        wrong = self.example
        numbers = "" if wrong.numbered in (None, wrong.stored) else f" ({wrong.numbered} different)"
        return f"{self.stream} offset {wrong.offset}: {wrong.expected} rows expected, {wrong.stored} stored{numbers}"


@dataclass(frozen=True, slots=True)
class TableResult:
    """One table on one replica. `messages` and `rows` as produced; `rows` without those of dead letters.

    `table` is empty for messages that name none. `exists` is whether the replica has the table. `others` and `unnamed`
    count rows that were seen and not judged, as in `stored.Held`; `doubt` is why a difference may be none.
    """

    table: str
    replica: str
    exists: bool
    messages: int
    rows: int
    dead_letters: int
    stored: int
    duplicates: int
    missing: int
    unexpected: int
    offenders: tuple[Offender, ...]
    others: Mapping[str, int] = field(default_factory=dict)
    unnamed: int = 0
    doubt: Doubt = NONE
    open_letters: int = 0
    """Those of the dead letters that were not sent again."""

    @property
    def exact(self) -> bool:
        return not (self.duplicates or self.missing or self.unexpected)

    @property
    def undecided(self) -> bool:
        """Not exact, and neither can the difference be called a fault."""
        only_missing = not (self.duplicates or self.unexpected)
        return not self.exact and (self.doubt.of_all or (bool(self.doubt.why) and only_missing))


def table_result(
    table: str,
    replica: str,
    *,
    exists: bool,
    messages: int,
    rows: int,
    dead_letters: int,
    differences: Sequence[tuple[StreamId, Difference]],
    others: Mapping[str, int] | None = None,
    unnamed: int = 0,
    doubt: Doubt = NONE,
    open_letters: int = 0,
) -> TableResult:
    """The sum over all streams of a table."""
    found = [difference for _, difference in differences]
    offenders = [Offender(stream, example) for stream, d in differences for example in d.examples]
    return TableResult(
        table,
        replica,
        exists,
        messages,
        rows,
        dead_letters,
        stored=sum(d.stored for d in found),
        duplicates=sum(d.duplicates for d in found),
        missing=sum(d.missing for d in found),
        unexpected=sum(d.unexpected for d in found),
        offenders=tuple(offenders[:_SHOWN]),
        others=others or {},
        unnamed=unnamed,
        doubt=doubt,
        open_letters=open_letters,
    )


@dataclass(frozen=True, slots=True)
class AuditReport:
    """`exact` only if every row of Kafka is on every replica exactly once, and nothing else is; `undecided` if it is
    not, and all that differs cannot be judged.

    `expired` counts rows below the begin of the logs that no manifest vouches for: they could not be judged.
    `values` is there if they were compared; `exact` needs them to be right.
    """

    topic: str
    tables: tuple[TableResult, ...]
    manifest: ManifestResult | None = None
    expired: int = 0
    replicas: tuple[str, ...] = ()
    """Those that were compared, `host:port`."""
    values: ValuesReport | None = None

    @property
    def exact(self) -> bool:
        return (
            all(table.exact for table in self.tables)
            and (self.manifest is None or self.manifest.exact)
            and (self.values is None or self.values.exact)
        )

    @property
    def undecided(self) -> bool:
        beside = (self.manifest is None or self.manifest.exact) and (self.values is None or self.values.exact)
        return not self.exact and beside and all(table.exact or table.undecided for table in self.tables)

    @property
    def open_letters(self) -> int:
        """Dead letters of all tables that were not sent again: their rows are on no replica."""
        found: dict[str, int] = {}
        for table in self.tables:
            found[table.table] = max(table.open_letters, found.get(table.table, 0))
        return sum(found.values())

    def to_json(self) -> dict[str, Any]:
        """`exact` is there for the whole, each table and the manifest, `undecided` for the whole and each table."""
        tables = []
        for table in self.tables:
            shown = {key: value for key, value in asdict(table).items() if key != "offenders"}
            offenders = [{"stream": str(o.stream), **asdict(o.example)} for o in table.offenders]
            tables.append({**shown, "exact": table.exact, "undecided": table.undecided, "offenders": offenders})
        manifest = None if self.manifest is None else {**asdict(self.manifest), "exact": self.manifest.exact}
        return {
            "exact": self.exact,
            "undecided": self.undecided,
            "topic": self.topic,
            "expired": self.expired,
            "replicas": list(self.replicas),
            "manifest": manifest,
            "tables": tables,
            "values": None if self.values is None else self.values.to_json(),
        }

    def render(self) -> RenderableType:
        """A table with a line per table and replica, the first offenders, and a verdict."""
        lines: list[RenderableType] = [self._grid()]
        for table in self.tables:
            if not table.exact:
                where = f"{_shown(table.table)} on {table.replica}"
                absent = "" if table.exists or table.table == NO_TABLE else ": there is no such table"
                lines.append(Text(f"{where}{absent}", style="bold"))
                lines += [Text(f"  {offender}", no_wrap=True, overflow="ignore") for offender in table.offenders]
            lines += [Text(f"{_shown(table.table)} on {table.replica}: {seen}") for seen in _not_judged(table)]
        if self.expired:
            lines.append(Text(f"{self.expired:,} stored rows are older than the logs: they could not be judged"))
        if self.manifest is not None:
            m = self.manifest
            lines.append(Text(f"manifest: {m.messages:,} messages, {m.lost:,} not in Kafka, {m.different:,} different"))
        if self.values is not None:
            lines.append(self.values.render())
        lines.append(self._verdict())
        return Group(*lines)

    def _verdict(self) -> Text:
        if self.exact:
            count = self.open_letters
            if not count:
                return Text("exact: every row once on every replica", style="bold green")
            what = "1 dead letter that is open" if count == 1 else f"{count:,} dead letters that are open"
            return Text(f"exact, but for {what}: blockhouse dlq list", style="bold yellow")
        if self.undecided:
            return Text("CANNOT BE JUDGED: what differs may be right", style="bold yellow")
        return Text("NOT EXACT", style="bold red")

    def _grid(self) -> Table:
        grid = Table(title=f"audit of topic {self.topic}", title_justify="left")
        for name in ("table", "replica"):
            grid.add_column(name, overflow="fold")
        for name in ("messages", "rows", "dead letters", "stored", "duplicates", "missing", "unexpected"):
            grid.add_column(name, justify="right", overflow="fold")
        for t in self.tables:
            counts = (t.messages, t.rows, t.dead_letters, t.stored)
            faults = (t.duplicates, t.missing, t.unexpected)
            cells = [f"{n:,}" for n in counts] + [f"[red]{n:,}[/red]" if n else "0" for n in faults]
            grid.add_row(_shown(t.table), t.replica, *cells)
        return grid


def _not_judged(table: TableResult) -> list[str]:
    """What else the table holds, in words."""
    found = [f"{rows:,} rows of another topic, {name}: not judged" for name, rows in table.others.items()]
    if table.unnamed:
        text = "rows name no topic, and others of their offsets do: whose they are cannot be judged"
        found.append(f"{table.unnamed:,} {text}")
    if table.doubt.why:
        what = "differences" if table.doubt.of_all else "missing rows"
        found.append(f"{what} cannot be judged: {table.doubt.why}")
    return found


def _shown(table: str) -> str:
    return table or "(no table header)"
