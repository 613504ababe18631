"""What the server reports of its tables: columns, replication, deduplication window, provenance, views on it.

Read from `system.*` in columns that 18.16 and current servers share. It never writes, and it guesses nothing: a window
that cannot be read is taken as the smallest any version ever had by default.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from blockhouse.schema.difference import FoundTable
from blockhouse.schema.model import PROVENANCE_COLUMNS, TOPIC_COLUMN, DefaultKind, ServerColumn
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.shard_columns import Lacking

_WINDOW = "deduplication_window"
_SECONDS = "deduplication_window_seconds"
_SMALLEST = {_WINDOW: 100, _SECONDS: 3600}
_SYSTEM_DATABASES = ("system", "INFORMATION_SCHEMA", "information_schema")


class By(StrEnum):
    """What a block of the table is recognised by when it is sent again."""

    CONTENT = "content"
    """Its rows and columns: the servers of the shard have no tokens."""
    TOKEN = "token"
    """Its token, whatever its bytes: every replica of the shard has tokens."""
    NOTHING = "nothing"
    """Some replicas have tokens and others do not, or that is not known of all: neither holds from one to another."""


@dataclass(frozen=True, slots=True)
class Identity:
    """`since_ms`: of blocks inserted before this moment (Unix milliseconds of the ensemble) it does not hold."""

    by: By = By.CONTENT
    since_ms: int = 0


IDENTITY = frozenset({"_kafka_cluster", "_kafka_partition", "_kafka_offset"})
"""Columns that name the message of a row."""
_APART = IDENTITY | {"_kafka_row"}


@dataclass(frozen=True, slots=True)
class ServerTable:
    """A table as one replica has it at one moment.

    `zookeeper_path` and `replica_name` are None unless `replicated`. `deduplication_window` counts blocks (a block over
    n partitions counts n times) of all writers in the shard; 0 means that nothing is deduplicated.
    `provenance` holds those of PROVENANCE_COLUMNS that the table has. `materialized_views` are `database.name`.
    `lacking` are live replicas, this one too, without columns that the shard has.
    """

    database: str
    name: str
    engine: str
    replicated: bool
    zookeeper_path: str | None
    replica_name: str | None
    columns: tuple[ServerColumn, ...]
    deduplication_window: int
    deduplication_window_seconds: int
    provenance: frozenset[str]
    materialized_views: tuple[str, ...]
    partition_key: str
    sorting_key: str = ""
    identity: Identity = Identity()
    lacking: tuple[Lacking, ...] = ()

    @property
    def full_name(self) -> str:
        return f"{self.database}.{self.name}"

    @property
    def definition(self) -> FoundTable:
        """What of it a declaration is compared with."""
        return FoundTable(self.engine, self.columns, self.partition_key, self.sorting_key)

    @property
    def merges_rows(self) -> bool:
        """What is stored is no proof of what was inserted: see the function of this name."""
        return merges_rows(self.engine, self.sorting_key, self.provenance)

    @property
    def shows_blocks(self) -> bool:
        """Its rows show which messages were inserted."""
        return self.provenance >= IDENTITY and not self.merges_rows


def merges_rows(engine: str, sorting_key: str, columns: frozenset[str]) -> bool:
    """Whether the engine makes one row of several messages' rows, or of none. Rows whose sorting key names the message
    they are of stay apart, and its topic where rows name it: one that was created again begins at the same offsets."""
    family = engine.removeprefix("Replicated").removeprefix("Shared")
    apart = _APART | ({TOPIC_COLUMN} & columns)
    return family.endswith("MergeTree") and family != "MergeTree" and not set(sorting_key.split(", ")) >= apart


def describe(replica: Replica, database: str, table: str) -> ServerTable | None:
    """The table, or None when this replica does not have it. Raises what `Replica.query` raises."""
    rows = replica.query(
        "SELECT engine, create_table_query, partition_key, sorting_key, dependencies_database, dependencies_table"
        " FROM system.tables WHERE database = %(database)s AND name = %(table)s",
        {"database": database, "table": table},
    )
    if not rows:
        return None
    engine, create, partition_key, sorting_key, view_databases, view_names = rows[0]
    replicated = "Replicated" in engine
    path, name = _replication(replica, database, table) if replicated else (None, None)
    columns = _columns(replica, database, table)
    window, seconds = _deduplication(replica, create, replicated)
    return ServerTable(
        database=database,
        name=table,
        engine=engine,
        replicated=replicated,
        zookeeper_path=path,
        replica_name=name,
        columns=columns,
        deduplication_window=window,
        deduplication_window_seconds=seconds,
        provenance=_provenance(columns),
        materialized_views=tuple(sorted(f"{db}.{view}" for db, view in zip(view_databases, view_names, strict=True))),
        partition_key=partition_key,
        sorting_key=sorting_key,
    )


def _provenance(columns: Sequence[ServerColumn]) -> frozenset[str]:
    """A topic's column of another kind is none: no block could fill it."""
    return frozenset(PROVENANCE_COLUMNS) & {
        column.name for column in columns if column.name != TOPIC_COLUMN or column.default_kind.insertable
    }


def list_tables(replica: Replica, database: str | None = None) -> tuple[str, ...]:
    """`database.table` of every MergeTree table, of one database or of all but the system's, sorted."""
    rows = replica.query(
        "SELECT database, name FROM system.tables WHERE engine LIKE '%%MergeTree'"
        " AND database NOT IN %(system)s AND (database = %(database)s OR %(database)s = '')",
        {"system": _SYSTEM_DATABASES, "database": database or ""},
    )
    return tuple(sorted(f"{db}.{name}" for db, name in rows))


def replicated_tables(replica: Replica) -> dict[str, str]:
    """Path in ZooKeeper, without ClickHouse's own root, of every replicated table, by `database.table`."""
    rows = replica.query("SELECT database, table, zookeeper_path FROM system.replicas")
    return {f"{database}.{table}": path for database, table, path in rows}


def fingerprints(replica: Replica) -> dict[str, int]:
    """By `database.table` a number that changes when any column does, how the table was created (engine, keys,
    settings, TTL), where it is replicated, or what views hang on it: another table may have its name now."""
    rows = replica.query(
        "SELECT of, sum(print) FROM (SELECT concat(database, '.', table) AS of,"
        " cityHash64(name, type, default_kind, default_expression) AS print"
        " FROM system.columns WHERE database != 'system'"
        " UNION ALL SELECT concat(database, '.', name) AS of, cityHash64(create_table_query, arrayStringConcat("
        "arraySort(arrayMap((d, t) -> concat(d, '.', t), dependencies_database, dependencies_table)), ',')) AS print"
        " FROM system.tables WHERE database != 'system'"
        " UNION ALL SELECT concat(database, '.', table) AS of, cityHash64(zookeeper_path) AS print"
        " FROM system.replicas) GROUP BY of",
    )
    return dict(rows)


def started_ms(replica: Replica) -> int:
    """When the server was started: Unix milliseconds of its own clock, a second or two late at most."""
    ((seconds,),) = replica.query("SELECT toUnixTimestamp(now()) - toUInt32(uptime()) + 1")
    return int(seconds) * 1000


def caught_up(replica: Replica, database: str, table: str) -> bool:
    """Whether this replica has read the whole replication log and fetched every part in it.

    False also when the table is read-only, unknown or not replicated here. A positive answer is of a moment: it means
    something only while no other process inserts.
    """
    rows = replica.query(
        "SELECT is_readonly OR is_session_expired, log_pointer, log_max_index, inserts_in_queue, zookeeper_path"
        " FROM system.replicas WHERE database = %(database)s AND table = %(table)s",
        {"database": database, "table": table},
    )
    if not rows or rows[0][0]:
        return False
    _, pointer, newest, waiting, path = rows[0]
    if pointer == newest == 0:  # means both an empty log and one whose first entry was not read yet
        entries = replica.query("SELECT count() FROM system.zookeeper WHERE path = %(log)s", {"log": f"{path}/log"})
        return bool(entries[0][0] == 0)
    return bool(pointer > newest and waiting == 0)


def _replication(replica: Replica, database: str, table: str) -> tuple[str, str] | tuple[None, None]:
    rows = replica.query(
        "SELECT zookeeper_path, replica_name FROM system.replicas WHERE database = %(database)s AND table = %(table)s",
        {"database": database, "table": table},
    )
    return (rows[0][0], rows[0][1]) if rows else (None, None)


def _columns(replica: Replica, database: str, table: str) -> tuple[ServerColumn, ...]:
    """In the order `system.columns` answers in: the table's, but 18.16 puts MATERIALIZED and ALIAS columns last."""
    rows = replica.query(
        "SELECT name, type, default_kind, default_expression FROM system.columns"
        " WHERE database = %(database)s AND table = %(table)s",
        {"database": database, "table": table},
    )
    return tuple(
        ServerColumn(name=name, type=type_, default_kind=DefaultKind(kind), default_expression=expression)
        for name, type_, kind, expression in rows
    )


def _deduplication(replica: Replica, create: str, replicated: bool) -> tuple[int, int]:
    """(blocks, seconds): the table's own SETTINGS, else the server's (which include its version's defaults)."""
    prefix = "replicated_" if replicated else "non_replicated_"
    server = {
        name.removeprefix(prefix): int(value)
        for name, value in replica.query(
            "SELECT name, value FROM system.merge_tree_settings WHERE name IN %(names)s",
            {"names": (prefix + _WINDOW, prefix + _SECONDS)},
        )
    }
    if not replicated and _WINDOW not in server:
        return 0, 0  # too old a server to deduplicate in tables without replication
    own = _own_settings(create, prefix)
    window, seconds = ({**_SMALLEST, **server, **own}[name] for name in (_WINDOW, _SECONDS))
    return window, seconds


def _own_settings(create: str, prefix: str) -> dict[str, int]:
    """`SETTINGS replicated_deduplication_window = 5, ...` at the end of CREATE TABLE."""
    settings = create.rpartition("SETTINGS")[2]
    found = re.findall(rf"\b{prefix}({_WINDOW}|{_SECONDS})\s*=\s*'?(\d+)", settings)
    return {name: int(value) for name, value in found}
