"""A current ClickHouse server where none is installed: the engine of the wheel chdb-core as a replica. For tests only.

`docs/testing.md` lists what it cannot show.
"""

from __future__ import annotations

import sys
from pathlib import Path

SERIES = "26.9"
"""Versions of ClickHouse that the wheel of requirements.lock is."""
SHIM = Path(sys.prefix) / "share" / "blockhouse" / "clickhouse_shim.so"
"""`shim.c`, as `make setup` compiles it."""
REPLICAS_HOST = "127.0.0.2"
"""Where it listens to other replicas, on its HTTP port: it opens each port once per address, and no other."""
