"""What the catalog says of a table that nobody had met before."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from blockhouse.errors import Retryable
from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.runtime.catalog import Catalog

TABLE = "db.clicks"
HISTORY = TableHistory(id=7, name=TABLE, revisions=())


class Outside:
    """A server that is away, or lacks the table, and a schema history: what is asked now waits for `may_answer`."""

    def __init__(self) -> None:
        self.away = True
        self.asked = 0
        self.may_answer = asyncio.Event()
        self.may_answer.set()
        ports: Any = SimpleNamespace(shard=self, schemas=self)
        self.catalog = Catalog(ports, lambda history, server: None)

    async def describe(self, table: str) -> None:
        self.asked += 1
        if self.away:
            raise Retryable("clickhouse: cannot connect")

    async def ensure_id(self, table: str) -> TableHistory:
        may_answer = self.may_answer
        await may_answer.wait()
        return HISTORY


async def test_a_table_is_unknown_only_when_the_server_has_said_so() -> None:
    outside = Outside()
    catalog = outside.catalog
    assert await catalog.id_of(TABLE) == HISTORY.id
    assert outside.asked == 1
    assert catalog.held() == {HISTORY.id}, "it waits"
    assert (catalog.why_not(HISTORY.id), dict(catalog.hopeless())) == ("", {}), "there is nothing to mend"
    assert catalog.dead_lettered(every=True, allowed=0) == frozenset(), "nobody knows that it is missing"

    outside.away = False
    await catalog.refresh_unknown()
    assert catalog.why_not(HISTORY.id) == "UnknownTable"
    assert catalog.dead_lettered(every=True, allowed=0) == {HISTORY.id}
    assert catalog.dead_lettered(every=False, allowed=1) == frozenset()

    outside.away = True
    await catalog.refresh_unknown()
    assert catalog.why_not(HISTORY.id) == "UnknownTable", "it was, when last asked"


async def test_a_stream_that_meets_a_table_second_does_not_forget_what_the_first_has_found() -> None:
    outside = Outside()
    outside.away = False
    late = outside.may_answer = asyncio.Event()
    second = asyncio.create_task(outside.catalog.id_of(TABLE))
    await asyncio.sleep(0)
    outside.may_answer = asyncio.Event()
    outside.may_answer.set()
    await outside.catalog.id_of(TABLE)
    outside.away = True
    late.set()
    assert await second == HISTORY.id
    assert outside.asked == 2
    assert outside.catalog.why_not(HISTORY.id) == "UnknownTable"
