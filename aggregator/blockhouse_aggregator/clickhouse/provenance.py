"""Which rows of a block does this replica have? Provenance columns tell, when an intent is too old for deduplication.

Ask only with the table's lock held, and believe the answer only when no quorum was pending before and after
(`quorum.acknowledgeable`). It must never answer from a replica that lacks a part: that is a retryable fault. What the
answer means is decided, purely, in `presence.py`.

The rows are read without `select_sequential_consistency`: measured on 18.16, it hides rows inserted without quorum
behind a partition's last part that had one, and rows hidden here would be inserted twice. The setting only serves as a
second witness that this replica has every part that reached its quorum.
"""

from __future__ import annotations

from blockhouse.errors import Blocked
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.errors import Fault, ServerFault
from blockhouse_aggregator.clickhouse.names import qualified
from blockhouse_aggregator.clickhouse.presence import StoredRows
from blockhouse_aggregator.clickhouse.tables import ServerTable, caught_up

_REQUIRED = frozenset({"_kafka_cluster", "_kafka_partition", "_kafka_offset"})


def stored_rows(replica: Replica, table: ServerTable, cluster: str, partition: int, begin: int, end: int) -> StoredRows:
    """Rows of the messages `[begin, end]` (both included) of one stream in `table`.

    Raises Blocked for a table without provenance columns, ServerFault when this replica does not have all parts yet.
    """
    if not table.provenance >= _REQUIRED:
        raise Blocked(
            f"table {table.full_name} has no columns {', '.join(sorted(_REQUIRED - table.provenance))}: nobody can say"
            f" whether block {begin}..{end} of {cluster}/{partition} is stored: `blockhouse streams resolve` decides",
            on="ProvenanceMissing",
        )
    if table.replicated and not caught_up(replica, table.database, table.name):
        raise ServerFault(
            f"{replica.name}, table {table.full_name}: replica has not fetched all parts yet, or is read-only",
            fault=Fault.REPLICA,
            after=0.5,
        )
    where = qualified(table.database, table.name)
    if table.replicated:
        replica.query(f"SELECT 1 FROM {where} LIMIT 0", settings={"select_sequential_consistency": 1})  # 289 if not
    numbered = "_kafka_row" in table.provenance
    found = replica.query(
        f"SELECT _kafka_offset, count(){', groupArray(_kafka_row)' if numbered else ''} FROM {where}"
        " WHERE _kafka_cluster = %(cluster)s AND _kafka_partition = %(partition)s"
        " AND _kafka_offset >= %(begin)s AND _kafka_offset <= %(end)s GROUP BY _kafka_offset",
        {"cluster": cluster, "partition": partition, "begin": begin, "end": end},
    )
    counts = {row[0]: row[1] for row in found}
    return StoredRows(counts, {row[0]: tuple(sorted(row[2])) for row in found} if numbered else None)
