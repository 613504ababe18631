"""Whether a table could and should be loaded, asked before its first message is: a table that is refused with a reason
beats one whose blocks fail one by one."""

from __future__ import annotations

from collections.abc import Callable

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import Permanent
from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.runtime.tables.hazards import PROVENANCE_MISSING, hazards
from blockhouse_aggregator.wire.rows import RowsDecoder


def check_columns(history: TableHistory) -> None:
    """Raise Permanent, naming the column, when a table with these columns could not be loaded."""
    assert history.current is not None
    RowsDecoder(history, history.current)


def check_loadable(config: AggregatorConfig) -> Callable[[TableHistory, ServerTable], None]:
    """A check that raises Permanent, naming engine, column or setting, for a table that cannot or must not be loaded.

    What is no MergeTree takes no insert (View, Merge), or keeps its rows elsewhere, later or not at all (Distributed,
    Buffer, Memory, Null): a block would be blocked, or acknowledged and gone."""

    def check(history: TableHistory, server: ServerTable) -> None:
        if not server.engine.endswith("MergeTree"):
            raise Permanent(
                f"table {history.name}: engine {server.engine} cannot be loaded exactly once: send to a table of the "
                "MergeTree family",
                reason="UnsupportedEngine",
            )
        check_columns(history)
        for hazard in hazards(server, config, 1):
            if hazard.reason == PROVENANCE_MISSING and config.provenance == "require":
                raise Permanent(f"table {history.name}: {hazard.text}", reason=hazard.reason)

    return check
