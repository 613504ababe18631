"""Where ClickHouse keeps a declared table in ZooKeeper: only what can be read from the declaration itself."""

from __future__ import annotations

import re
from collections.abc import Callable

from blockhouse_operator.api.parts import Table
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec

_REPLICATED = re.compile(r"Replicated\w*MergeTree\s*\(\s*'((?:[^'\\]|\\.)+)'", re.IGNORECASE)


def replication_path(ddl: str, table: str, spec: ClickHouseShardIngestSpec) -> str | None:
    """The table's own node, macros filled in; None when the declaration does not have it, or has other macros in it."""
    match = _REPLICATED.search(ddl)
    if match is None:
        return None
    database, _, name = table.partition(".")
    values = {"shard": str(spec.shard), "cluster": spec.clickhouse.cluster, "database": database, "table": name}
    path = match[1]
    for macro, value in values.items():
        path = path.replace("{" + macro + "}", value)
    return None if "{" in path or not path.startswith("/") else path.rstrip("/")


def replication_paths(spec: ClickHouseShardIngestSpec, ddl_of: Callable[[Table], str | None]) -> dict[str, str | None]:
    """`replication_path` of every table of the shard, by name; `ddl_of` reads a declaration wherever it is."""
    found = {table.name: ddl_of(table) for table in spec.tables}
    return {name: replication_path(ddl, name, spec) if ddl else None for name, ddl in found.items()}
