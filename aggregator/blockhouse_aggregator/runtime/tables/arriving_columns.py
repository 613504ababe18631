"""Whether columns that an ALTER added have arrived at every live replica: before, a table must not be loaded with them.

A part that is written with a column cannot be fetched by a replica without it: its quorum waits, and every insert of
the shard into the table with it (error 286).
"""

from __future__ import annotations

from blockhouse.errors import Blocked
from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.clickhouse.shard_columns import Lacking, words
from blockhouse_aggregator.clickhouse.tables import ServerTable

REPLICA_LACKS_COLUMN = "ReplicaLacksColumn"
_REMEDY = (
    "the column arrives once nothing there holds the table up (a query or an insert, see its system.processes);"
    " if it does not, run the same ALTER TABLE ... ADD COLUMN there"
)


def check_arrived(history: TableHistory, server: ServerTable) -> None:
    """Raise Blocked(ReplicaLacksColumn), naming replica and columns, while another live replica lacks a column of this
    one, or this one lacks a column of the last revision that its shard has. A replica that is late with columns that
    are not recorded yet is loaded without them."""
    here = {column.name for column in server.columns}
    recorded = {column.name for column in history.current.columns} if history.current is not None else set()
    others = [found for each in server.lacking if each.replica != server.replica_name and (found := _of(each, here))]
    if others:
        raise Blocked(
            f"table {history.name}: {words(others)}, which {server.replica_name} has: what is written with it could not"
            f" be fetched there and every insert would wait (error 286). For each: {_REMEDY}",
            reason=REPLICA_LACKS_COLUMN,
        )
    own = [found for each in server.lacking if each.replica == server.replica_name and (found := _of(each, recorded))]
    if own:
        raise Blocked(
            f"table {history.name}: {words(own)}, which its shard has by an ALTER: {_REMEDY}",
            reason=REPLICA_LACKS_COLUMN,
        )


def _of(lacking: Lacking, names: set[str]) -> Lacking | None:
    """Of what the replica lacks, what is among `names`; None: nothing."""
    columns = tuple(name for name in lacking.columns if name in names)
    return Lacking(lacking.replica, columns) if columns else None
