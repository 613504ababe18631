"""What a comparison of values found, by table and replica. Values only."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blockhouse.streams import StreamId

_SHOWN = 5


@dataclass(frozen=True, slots=True)
class WrongValue:
    """A stored value that is not the one that was sent; `row` is its number inside the message."""

    stream: StreamId
    offset: int
    row: int
    column: str
    sent: str
    stored: str

    def __str__(self) -> str:
        place = f"{self.stream} offset {self.offset} row {self.row}"
        return f"column {self.column}, {place}: {self.sent} sent, {self.stored} stored"

    def to_json(self) -> dict[str, Any]:
        where = {"stream": str(self.stream), "offset": self.offset, "row": self.row, "column": self.column}
        return {**where, "sent": self.sent, "stored": self.stored}


@dataclass(slots=True)
class TableValues:
    """One table on one replica: `rows` and `values` that were compared, `wrong` of these values by column, and the
    first offenders.

    `columns` are those of which nothing was compared, with the reason. `rest` counts what else was not judged, by
    reason: messages, rows, or values of a column.
    """

    table: str
    replica: str
    rows: int = 0
    values: int = 0
    wrong: Counter[str] = field(default_factory=Counter)
    columns: dict[str, str] = field(default_factory=dict)
    rest: Counter[str] = field(default_factory=Counter)
    offenders: list[WrongValue] = field(default_factory=list)

    @property
    def exact(self) -> bool:
        return not self.wrong

    def note(self, offender: WrongValue) -> None:
        """Keep the offender if it is among the first ones."""
        if len(self.offenders) < _SHOWN:
            self.offenders.append(offender)

    def to_json(self) -> dict[str, Any]:
        return {
            "table": self.table,
            "replica": self.replica,
            "rows": self.rows,
            "values": self.values,
            "exact": self.exact,
            "wrong": dict(self.wrong),
            "not_judged": {"columns": self.columns, "other": dict(self.rest)},
            "offenders": [offender.to_json() for offender in self.offenders],
        }


@dataclass(frozen=True, slots=True)
class ValuesReport:
    """`messages` were chosen of `of` in Kafka that were to be stored. `exact`: no compared value is wrong, and at least
    one was compared. What was not judged is named and does not count."""

    messages: int
    of: int
    tables: tuple[TableValues, ...]

    @property
    def judged(self) -> int:
        return sum(table.values for table in self.tables)

    @property
    def exact(self) -> bool:
        return self.judged > 0 and all(table.exact for table in self.tables)

    def why_not(self) -> str:
        """Why something was not judged: the reasons, each once."""
        reasons = [reason for table in self.tables for reason in (*table.columns.values(), *table.rest)]
        return "; ".join(dict.fromkeys(reasons)) or "no row of the chosen messages is stored"

    def to_json(self) -> Mapping[str, Any]:
        """`exact` is there for the whole and each table; counts are of messages, rows and values."""
        tables = [table.to_json() for table in self.tables]
        return {"exact": self.exact, "messages": self.messages, "of": self.of, "tables": tables}
