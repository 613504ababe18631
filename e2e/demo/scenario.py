"""What the demonstration does and when, decided by the seed alone: tables, load, whom to kill and whom to freeze.

Pure: no clock, no server. The same arguments give the same scenario, so that a run can be repeated.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

from blockhouse.schema.history import first_revision
from blockhouse.schema.model import Revision, ServerColumn
from blockhouse_aggregator.produce.load import LoadSpec
from e2e.stack.tables import PROVENANCE

DATABASE = "default"
ROWS_PER_MESSAGE = 10
FIRST_MESSAGES = 200
"""Sent before the clock starts: an aggregator is warm when the first of them are stored."""
SECONDS = 60.0
"""How long rows are produced: long enough for every fault to fall into the flow."""
TRICKLE_EVERY = 3.0
"""Seconds between two messages of the quietest table, on average."""

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
TRICKLE = "alerts"


@dataclass(frozen=True, slots=True)
class Fault:
    """`at` is in seconds after the first message; `candidates` are replicas, the preferred one first."""

    at: float
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run, fully decided."""

    seed: int
    rows: int
    replicas: int
    kill: Fault
    create_late_at: float
    freeze: Fault
    freeze_seconds: float

    @property
    def partitions(self) -> int:
        """As many per Kafka cluster as replicas: each owns one stream of every cluster."""
        return self.replicas

    @property
    def load(self) -> LoadSpec:
        messages = -(-self.rows // ROWS_PER_MESSAGE)
        rate = messages / SECONDS
        trickle = 1 / (TRICKLE_EVERY * rate)
        weights = {t.full_name: trickle if t.name == TRICKLE else t.share for t in TABLES}
        return LoadSpec(weights, messages, ROWS_PER_MESSAGE, rate=rate, seed=self.seed)


def plan(seed: int, rows: int, replicas: int) -> Scenario:
    """The scenario of a seed. ValueError below two replicas."""
    if replicas < 2:
        raise ValueError(f"a killed aggregator's work must go to another one: 2 replicas or more, not {replicas}")
    rng = random.Random(seed)
    order = [f"r{number}" for number in range(1, replicas + 1)]
    rng.shuffle(order)
    return Scenario(
        seed=seed,
        rows=rows,
        replicas=replicas,
        kill=Fault(rng.uniform(6, 9), tuple(order)),
        create_late_at=rng.uniform(20, 24),
        freeze=Fault(rng.uniform(28, 32), (*order[1:], order[0])),
        freeze_seconds=rng.uniform(9, 11),
    )
