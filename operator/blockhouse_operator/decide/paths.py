"""Where ClickHouse keeps a declared table in ZooKeeper: only what can be read from the declaration itself."""

from __future__ import annotations

import re

from blockhouse_operator.api.shard import ClickHouseShardIngestSpec

_REPLICATED = re.compile(r"Replicated\w*MergeTree\s*\(\s*'((?:[^'\\]|\\.)+)'", re.IGNORECASE)


def replication_path(ddl: str, table: str, spec: ClickHouseShardIngestSpec) -> str | None:
    """The table's own node, macros filled in; None when the declaration does not say it, or says it by other macros."""
    match = _REPLICATED.search(ddl)
    if match is None:
        return None
    database, _, name = table.partition(".")
    values = {"shard": str(spec.shard), "cluster": spec.clickhouse.cluster, "database": database, "table": name}
    path = match[1]
    for macro, value in values.items():
        path = path.replace("{" + macro + "}", value)
    return None if "{" in path or not path.startswith("/") else path.rstrip("/")
