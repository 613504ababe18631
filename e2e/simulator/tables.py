"""Tables of simulated shards: what a rollout makes of them, judged by the product's own comparison. No I/O, no rows.

All replicas of a shard get an ALTER at once, as replicated tables do; each must be created by itself.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from blockhouse.contract.aggregator import TableStatus
from blockhouse.contract.rollouts import DifferenceAnswer, HoldAnswer, ReleaseAnswer, declaration_digest
from blockhouse.errors import Blocked
from blockhouse.schema.ddl import Declaration, read_declaration
from blockhouse.schema.difference import Difference, FoundTable, compare
from blockhouse.schema.model import ServerColumn


@dataclass
class Table:
    """A table of a shard, and the replicas that have it. `rollout` holds it since `since_ms`, Unix milliseconds.
    `declared`: by replica the declaration it was found to equal, by its digest, and the table as it was then."""

    engine: str = ""
    columns: tuple[ServerColumn, ...] = ()
    partition_by: str = ""
    order_by: str = ""
    revision: int = 0
    replicas: set[str] = field(default_factory=set)
    rollout: str = ""
    since_ms: int = 0
    declared: dict[str, tuple[str, FoundTable]] = field(default_factory=dict)

    @property
    def found(self) -> FoundTable:
        """As its server has it."""
        return FoundTable(f"Replicated{self.engine}", self.columns, self.partition_by, self.order_by)

    def as_declared(self, replica: str) -> str:
        """What the replica's status states so."""
        digest, found = self.declared.get(replica, ("", None))
        return digest if found == self.found and replica in self.replicas and not self.rollout else ""


@dataclass
class ShardTables:
    """The tables of one shard, by name."""

    tables: dict[str, Table] = field(default_factory=dict)
    restarts: int = 0
    """Demands to restart so far."""

    def status(self, replica: str) -> list[TableStatus]:
        """The part of a replica's status page."""
        return [
            TableStatus(
                name=name,
                id=number,
                revision=table.revision,
                held="SchemaRollout" if table.rollout else "" if replica in table.replicas else "UnknownTable",
                why=f"paused by rollout {table.rollout}" if table.rollout else "",
                rollout=table.rollout,
                held_since_ms=table.since_ms,
                as_declared=table.as_declared(replica),
                hazards=(),
            )
            for number, (name, table) in enumerate(sorted(self.tables.items()), start=1)
        ]

    def gap(self, replica: str, name: str, ddl: str) -> DifferenceAnswer:
        """Answer of /tables/TABLE/difference. Raises Permanent as the real one does."""
        declared = read_declaration(name, ddl)
        difference = self._difference(replica, declared)
        added = difference.added if difference else declared.columns
        if difference is not None and difference.none:
            self.tables[name].declared[replica] = (declaration_digest(ddl), self.tables[name].found)
        return DifferenceAnswer(
            exists=difference is not None,
            added=tuple(each.column.name for each in added),
            refused=difference.refused if difference else (),
        )

    def apply(self, replica: str, name: str, ddl: str, rollout: str, *, restart: bool = False) -> DifferenceAnswer:
        """Answer of PUT /tables/TABLE. Raises Permanent and Blocked as the real one does."""
        declared, gap = read_declaration(name, ddl), self.gap(replica, name, ddl)
        table = self.tables.setdefault(name, Table())
        if gap.refused:
            raise Blocked("; ".join(gap.refused), reason="SchemaChange")
        if not gap.exists and not table.columns:
            table.engine, table.columns = declared.engine, tuple(each.column for each in declared.columns)
            table.partition_by, table.order_by, table.revision = declared.partition_by, declared.order_by, 1
        elif gap.exists and gap.added:
            if table.rollout != rollout:
                raise Blocked(f"table {name} is not paused by {rollout}", reason="NotHeld")
            new = tuple(each.column for each in declared.columns if each.column.name in gap.added)
            table.columns, table.revision = (*table.columns, *new), table.revision + 1
            self.restarts += restart
        table.replicas.add(replica)
        return gap

    def lose(self, replica: str) -> None:
        """The replica's volume is another one."""
        for table in self.tables.values():
            table.replicas.discard(replica)

    def hold(self, name: str, rollout: str, now_ms: int) -> HoldAnswer:
        """Answer of PUT /tables/TABLE/hold. Raises Blocked while another rollout holds the table."""
        table = self.tables.setdefault(name, Table())
        self._refuse_other(name, table, rollout)
        table.rollout, table.since_ms = rollout, table.since_ms or now_ms
        return HoldAnswer(rollout=rollout, since_ms=table.since_ms)

    def release(self, name: str, rollout: str) -> ReleaseAnswer:
        """Answer of DELETE /tables/TABLE/hold. Raises as `hold` does."""
        table = self.tables.setdefault(name, Table())
        self._refuse_other(name, table, rollout)
        released = bool(table.rollout)
        table.rollout, table.since_ms = "", 0
        return ReleaseAnswer(released=released)

    def _refuse_other(self, name: str, table: Table, rollout: str) -> None:
        if table.rollout not in ("", rollout):
            raise Blocked(f"table {name} is paused by rollout {table.rollout}", reason="HeldByOther")

    def _difference(self, replica: str, declared: Declaration) -> Difference | None:
        table = self.tables.get(declared.name)
        if table is None or replica not in table.replicas:
            return None
        return compare(declared, table.found)
