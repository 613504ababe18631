"""One replicated table: deduplication by content inside a window, and a quorum that may be met late or never."""

from __future__ import annotations

from tests.protocol_model.log import Rows
from tests.protocol_model.world import Table


def parts_of(rows: Rows, partitions: int) -> tuple[Rows, ...]:
    """One part for each ClickHouse partition the rows touch, in the order in which the server writes them."""
    split = (tuple(row for row in rows if row % partitions == p) for p in range(partitions))
    return tuple(part for part in split if part)


def new_parts(table: Table, rows: Rows, partitions: int) -> tuple[Rows, ...]:
    """The parts an insert of `rows` would write; the others are deduplicated, even while they wait for their quorum."""
    return tuple(part for part in parts_of(rows, partitions) if part not in table.hashes)


def write(table: Table, parts: tuple[Rows, ...]) -> Table:
    return table._replace(stored=tuple(sorted(table.stored + sum(parts, ()))), hashes=table.hashes | set(parts))


def begin(table: Table, part: Rows) -> Table:
    """The part is written here, but no other replica has fetched it yet."""
    return table._replace(pending=part, hashes=table.hashes | {part})


def meet_quorum(table: Table) -> Table:
    assert table.pending is not None
    return table._replace(stored=tuple(sorted(table.stored + table.pending)), pending=None)


def lose_writer(table: Table) -> Table:
    """The part vanishes, and in the same transaction its hash leaves the window."""
    assert table.pending is not None
    return table._replace(pending=None, hashes=table.hashes - {table.pending}, failed=table.failed + 1)
