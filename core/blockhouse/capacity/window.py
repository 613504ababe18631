"""How many blocks a table's deduplication window holds when Blockhouse sets it. It must never know a server."""

from __future__ import annotations

import math

OUTAGE = 600.0
"""Seconds of production that the window of a new table holds. What is older is decided by provenance."""
WEEK = 7 * 86400
"""Seconds after which the window forgets an entry in any case."""
LEAST_ENTRIES = 100
"""The default of ClickHouse 18.16."""


def window_entries(per_second: float) -> int:
    """`replicated_deduplication_window` of a table that gets so many entries a second from all streams of its shard."""
    return max(LEAST_ENTRIES, math.ceil(per_second * OUTAGE))
