"""bench/scrape.py measures what a pod has: as many series of streams and tables as docs/bench.md states."""

from __future__ import annotations

from pathlib import Path

import pytest
from prometheus_client import generate_latest

from bench.scrape import Load, counted

BENCH = Path(__file__).parents[3] / "docs" / "bench.md"
MOST = 3_000
"""Series of a typical pod."""


@pytest.fixture(autouse=True)
def no_times_of_creation(monkeypatch: pytest.MonkeyPatch) -> None:
    """As every program has it, of `process_figures`."""
    monkeypatch.setattr("prometheus_client.metrics._use_created", False)


async def series(streams: int, tables: int, lagging: int = 0) -> int:
    load = Load(streams, tables, lagging)
    for _ in range(2):
        await load.step()
    return counted(generate_latest(load.figures.registry))[1]


async def test_series_grow_with_streams_and_tables_as_the_page_states() -> None:
    two = await series(2, 2)
    of_a_stream = two - await series(1, 2)
    of_a_table = await series(2, 3) - two
    of_a_lagging_one = await series(2, 2, 1) - two
    others = two - 2 * (of_a_stream + of_a_table)
    each = f"{of_a_stream} for each stream, {of_a_table} for each table and {of_a_lagging_one} more while it lags"
    assert f"{others} series and {each}" in " ".join(BENCH.read_text().split())


async def test_a_typical_pod_stays_small() -> None:
    assert await series(64, 300) < MOST
