"""The schema history that aggregators of a pipeline write, as its producers need it."""

from __future__ import annotations

from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from e2e.stack.process import wait_until
from e2e.stack.server import StackError


def recorded_history(schemas: SchemaStore, table: str, timeout: float) -> TableHistory:
    """The table's history, once an aggregator has recorded what it found in ClickHouse; StackError when none does so
    within `timeout` seconds."""
    found: list[TableHistory] = []

    def recorded() -> bool:
        history = schemas.get(table)
        found[:] = [history] if history is not None and history.current is not None else []
        return bool(found)

    if not wait_until(recorded, timeout=timeout, interval=0.2):
        raise StackError(f"no aggregator recorded the schema of {table} within {timeout:g} s")
    return found[0]
