"""What an audit found, and how programs read it (`to_json`). Values only."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from blockhouse.streams import StreamId
from blockhouse_aggregator.audit.compare import Difference, Example
from blockhouse_aggregator.audit.doubts import NONE, Doubt
from blockhouse_aggregator.audit.manifest import ManifestResult
from blockhouse_aggregator.audit.values.report import ValuesReport

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class Offender:
    stream: StreamId
    example: Example

    def __str__(self) -> str:
        wrong = self.example
        numbers = "" if wrong.numbered in (None, wrong.stored) else f" ({wrong.numbered} different)"
        waits = ": not loaded yet" if wrong.waits else ""
        counts = f"{wrong.expected} rows expected, {wrong.stored} stored"
        return f"{self.stream} offset {wrong.offset}: {counts}{numbers}{waits}"


@dataclass(frozen=True, slots=True)
class TableResult:
    """One table on one replica. `messages` and `rows` as produced; `rows` without those of dead letters.

    `table` is empty for messages that name none. `exists` is whether the replica has the table. `others` and `unnamed`
    count rows that were seen and not judged, as in `stored.Held`; `doubt` is why a difference may be none. `waiting`
    are those of the missing rows whose messages need not be loaded yet, `open_letters` those of the dead letters that
    were not sent again.
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
    waiting: int = 0
    open_letters: int = 0

    @property
    def exact(self) -> bool:
        return not (self.duplicates or self.missing or self.unexpected)

    @property
    def waits(self) -> bool:
        """Not exact, and all that differs are rows that need not be loaded yet."""
        return 0 < self.waiting == self.missing and not (self.duplicates or self.unexpected)

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
    offenders.sort(key=lambda offender: offender.example.waits)
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
        waiting=sum(d.waiting for d in found),
        open_letters=open_letters,
    )


@dataclass(frozen=True, slots=True)
class AuditReport:
    """`exact` only if every row of Kafka is on every replica exactly once, and nothing else is; `undecided` if it is
    not, and that is because something was not compared, or all that differs cannot be judged.

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
    clusters: tuple[str, ...] = ()
    """Kafka clusters that were compared."""
    not_compared: Mapping[str, str] = field(default_factory=dict)
    """`Kafka cluster NAME` or `replica HOST:PORT` -> why."""

    @property
    def exact(self) -> bool:
        return self.compared_exact and not self.not_compared

    @property
    def compared_exact(self) -> bool:
        """Whether nothing is wrong in what was compared."""
        return self._beside_exact and all(table.exact for table in self.tables)

    @property
    def undecided(self) -> bool:
        return not self.exact and self._beside_exact and all(table.exact or table.undecided for table in self.tables)

    @property
    def waits(self) -> bool:
        """Not exact, and all that differs are rows that need not be loaded yet."""
        return (
            not self.compared_exact and self._beside_exact and all(table.exact or table.waits for table in self.tables)
        )

    @property
    def _beside_exact(self) -> bool:
        return (self.manifest is None or self.manifest.exact) and (self.values is None or self.values.exact)

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
            "clusters": list(self.clusters),
            "not_compared": dict(self.not_compared),
            "manifest": manifest,
            "tables": tables,
            "values": None if self.values is None else self.values.to_json(),
        }
