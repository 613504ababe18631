"""What the table's rows show of a granted block, asked by the task right before it would insert."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from blockhouse.errors import Blocked
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.lost_parts import has_lost_a_part
from blockhouse_aggregator.clickhouse.presence import (
    Absent,
    Ambiguous,
    Complete,
    Origin,
    Partial,
    StoredRows,
    decide,
)
from blockhouse_aggregator.clickhouse.provenance import stored_rows, stored_rows_of_any_revision
from blockhouse_aggregator.clickhouse.removals import why_not_to_insert_again
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.gate.messages import Grant


def presence(
    replica: Replica, table: ServerTable, grant: Grant, origin: Origin, expected: Mapping[int, int]
) -> Complete | Absent | Partial:
    """Of the block whose offsets have the `expected` numbers of rows. Raises Blocked when it cannot be determined which
    rows are missing, ServerFault when the replica may lack some."""
    read = stored_rows_of_any_revision if grant.repair else partial(stored_rows, enough=partial(_whole, expected))
    rows = read(replica, table, origin, grant.block.begin, grant.block.end, failed=grant.failed_parts)
    found = decide(expected, rows)
    if isinstance(found, Ambiguous):
        raise Blocked(
            f"table {grant.block.table}: of {len(found.offsets)} messages, the first at {found.offsets[0]},"
            " some rows are stored, and without column _kafka_row no one can determine which",
            reason="ProvenanceAmbiguous",
        )
    # After the rows were read: a DELETE in between makes them look as if they had never been stored.
    ask = grant.since_ms > 0 and not isinstance(found, Complete)
    if ask and (removed := why_not_to_insert_again(replica, table, grant.since_ms)):
        raise Blocked(
            f"table {grant.block.table}: not all rows of the block are there, and some may have been removed since:"
            f" {removed}; `blockhouse streams resolve` decides",
            reason="ProvenanceAmbiguous",
        )
    return found


def _whole(expected: Mapping[int, int], stored: StoredRows) -> bool:
    """Whether every expected row is among those stored, by offset."""
    return isinstance(decide(expected, stored), Complete)


def all_may_lack_a_part(replica: Replica, table: ServerTable, quorum: int) -> bool:
    """Whether this replica may lack a part for good, and all others too: one that all have lost or, without a quorum,
    one whose only replica is down. The deduplication window decides then, as long as it does."""
    return quorum < 2 or has_lost_a_part(replica, table.full_name)
