"""What was measured on a machine of two cores: `docs/bench.md` has how, and how to repeat it on another one."""

from __future__ import annotations

ROW_BYTES = 105
"""Of the rows that were measured, as protobuf: twelve columns of mixed types, ten rows a message."""
CPU_PER_MILLION_ROWS = 1.2
"""CPU seconds of an aggregator, driver, JVM and workers together."""
ROWS_PER_MESSAGE = 10
CPU_OF_MESSAGES = 0.35
"""The part of it that is spent on messages and not on rows: reading them, their headers, sorting them into tables."""
SHARD_ROWS = 562_000
"""Rows a second into one table of a shard of two replicas with quorum, in blocks of 10 MiB, every server included."""
INSERTS = 60.0
"""Quorum inserts a second into a shard of two replicas and 149 tables, every server included: about all it took."""


def cpu_per_million_rows(row_bytes: float, rows_per_message: float) -> float:
    """CPU seconds for a million rows: in proportion to messages, and to bytes for rows larger than those measured."""
    rows = (CPU_PER_MILLION_ROWS - CPU_OF_MESSAGES) * max(1.0, row_bytes / ROW_BYTES)
    return rows + CPU_OF_MESSAGES * ROWS_PER_MESSAGE / rows_per_message
