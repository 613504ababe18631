"""The tables that demonstration, chaos and rollouts load. Pure: other tables would make runs incomparable."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blockhouse.schema.history import first_revision
from blockhouse.schema.model import Revision, ServerColumn
from e2e.stack.tables import PROVENANCE

DATABASE = "default"
Columns = Sequence[tuple[str, str]]


@dataclass(frozen=True, slots=True)
class Table:
    """`share` is the part of all messages (0 to 1) that goes to the table; `late` tables are created in mid-run."""

    name: str
    columns: Columns
    order_by: str
    share: float
    late: bool = False

    @property
    def full_name(self) -> str:
        return f"{DATABASE}.{self.name}"

    @property
    def sql_columns(self) -> str:
        return ", ".join(f"{name} {type_}" for name, type_ in self.columns)

    @property
    def revision(self) -> Revision:
        """The first revision of its schema history, as ClickHouse will describe the table once it exists."""
        provenance = (tuple(column.split(" ", 1)) for column in PROVENANCE.split(", "))
        columns = [ServerColumn(name=name, type=type_) for name, type_ in (*self.columns, *provenance)]
        return first_revision(columns)


CLICKS: Columns = (
    ("id", "UInt64"),
    ("at", "DateTime"),
    ("day", "Date"),
    ("session", "UUID"),
    ("user", "Nullable(UInt32)"),
    ("device", "Enum8('desktop' = 1, 'phone' = 2, 'tablet' = 3)"),
    ("page", "String"),
    ("referrer", "Nullable(String)"),
    ("country", "FixedString(2)"),
    ("score", "Float64"),
    ("price", "Decimal(18, 2)"),
    ("tags", "Array(String)"),
)

TABLES = (
    Table("clicks", CLICKS, "day, id", 0.55),
    Table("orders", (("id", "UInt64"), ("at", "DateTime"), ("total", "Decimal(18, 2)")), "id", 0.16),
    Table("payments", (("id", "UInt64"), ("method", "String"), ("amount", "Float64")), "id", 0.12),
    Table("searches", (("id", "UInt64"), ("words", "Array(String)")), "id", 0.1),
    Table("alerts", (("id", "UInt64"), ("text", "String")), "id", 0.0),
    Table("refunds", (("id", "UInt64"), ("at", "DateTime"), ("reason", "String")), "id", 0.07, late=True),
)
