"""The append-only schema history of a pipeline's tables: ids, revisions, columns and their field numbers.

Pure values. Where they are stored is an adapter's business (ZooKeeper: `coordination/schema_store.py`).
"""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, Field

TOPIC_COLUMN = "_kafka_topic"
PROVENANCE_COLUMNS = ("_kafka_cluster", "_kafka_partition", "_kafka_offset", "_kafka_row", TOPIC_COLUMN)
"""Filled by the aggregator. The first three identify the message within its topic, the others (optional) the row inside
it and the topic itself, by name and id."""


class DefaultKind(StrEnum):
    """How ClickHouse fills a column that an INSERT does not name (`system.columns.default_kind`)."""

    NONE = ""
    DEFAULT = "DEFAULT"
    MATERIALIZED = "MATERIALIZED"
    ALIAS = "ALIAS"
    EPHEMERAL = "EPHEMERAL"

    @property
    def insertable(self) -> bool:
        """Whether an INSERT of ours may name the column. EPHEMERAL is left out: nothing of it is stored."""
        return self in (DefaultKind.NONE, DefaultKind.DEFAULT)


class Frozen(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class ServerColumn(Frozen):
    """One row of `system.columns`: the name, the type as ClickHouse spells it, and the default."""

    name: str
    type: str
    default_kind: DefaultKind = DefaultKind.NONE
    default_expression: str = ""


class Column(ServerColumn):
    """One column as the server has it. `field` is its protobuf field number in `Row`: given once, never reused."""

    field: int = Field(ge=1, le=536870911)


class Revision(Frozen):
    """A table's column set, in the server's order. `number` counts from 1."""

    number: int = Field(ge=1)
    columns: tuple[Column, ...]

    @property
    def insertable(self) -> tuple[Column, ...]:
        """The columns an INSERT names, provenance included, in the server's order."""
        return tuple(column for column in self.columns if column.default_kind.insertable)

    @property
    def row(self) -> tuple[Column, ...]:
        """The columns a producer fills (those of `Row`), in the server's order."""
        return tuple(column for column in self.insertable if column.name not in PROVENANCE_COLUMNS)

    @property
    def names_topic(self) -> bool:
        """Whether rows of this revision hold the topic they are from."""
        return any(column.name == TOPIC_COLUMN for column in self.insertable)


class TableHistory(Frozen):
    """Everything known of one table: a short id for the metadata, and its revisions, oldest first.

    A table that was seen on a stream but does not exist in ClickHouse yet has an id and no revision.
    `name` is always `database.table`.
    """

    id: int = Field(ge=1)
    name: str
    revisions: tuple[Revision, ...] = ()

    @property
    def current(self) -> Revision | None:
        return self.revisions[-1] if self.revisions else None

    def revision(self, number: int) -> Revision | None:
        """The schema revision of that number; None when it is not known."""
        return next((r for r in self.revisions if r.number == number), None)
