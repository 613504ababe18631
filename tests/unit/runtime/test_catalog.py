"""What the catalog answers about a table that no stream had met before, and when it asks the server again."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from blockhouse.errors import Retryable
from blockhouse.schema.model import DefaultKind, Revision, ServerColumn, TableHistory
from blockhouse_aggregator.runtime.tables.catalog import Catalog

TABLE = "db.clicks"
HISTORY = TableHistory(id=7, name=TABLE, revisions=())


class Ports:
    """A server that is down, or lacks the table, and a schema history: what is asked now waits for `may_answer`."""

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


async def test_a_table_is_unknown_only_when_the_server_has_answered_so() -> None:
    fakes = Ports()
    catalog = fakes.catalog
    assert await catalog.id_of(TABLE) == HISTORY.id
    assert fakes.asked == 1
    assert catalog.unavailable() == {HISTORY.id}, "it waits"
    assert (catalog.why_not(HISTORY.id), dict(catalog.hopeless())) == ("", {}), "there is nothing to fix"
    assert catalog.dead_lettered(every=True, allowed=0) == frozenset(), "it is not known to be missing"

    fakes.away = False
    await catalog.refresh_unknown()
    assert catalog.why_not(HISTORY.id) == "UnknownTable"
    assert catalog.dead_lettered(every=True, allowed=0) == {HISTORY.id}
    assert catalog.dead_lettered(every=False, allowed=1) == frozenset()

    fakes.away = True
    await catalog.refresh_unknown()
    assert catalog.why_not(HISTORY.id) == "UnknownTable", "it was, when last asked"


async def test_a_stream_that_meets_a_table_second_does_not_forget_what_the_first_has_found() -> None:
    fakes = Ports()
    fakes.away = False
    late = fakes.may_answer = asyncio.Event()
    second = asyncio.create_task(fakes.catalog.id_of(TABLE))
    await asyncio.sleep(0)
    fakes.may_answer = asyncio.Event()
    fakes.may_answer.set()
    await fakes.catalog.id_of(TABLE)
    fakes.away = True
    late.set()
    assert await second == HISTORY.id
    assert fakes.asked == 2
    assert fakes.catalog.why_not(HISTORY.id) == "UnknownTable"


class Healthy:
    """A server that has the table, of which it shows one number that changes with it."""

    def __init__(self) -> None:
        self.fingerprint = 1
        self.away = False
        self.asked = 0
        ports: Any = SimpleNamespace(shard=self, schemas=self)
        self.catalog = Catalog(ports, lambda history, server: None)

    async def describe(self, table: str) -> Any:
        self.asked += 1
        if self.away:
            raise Retryable("zookeeper: unavailable")
        column = ServerColumn(name="id", type="UInt64", default_kind=DefaultKind(""), default_expression="")
        return SimpleNamespace(columns=(column,), lacking=())

    async def fingerprints(self) -> Mapping[str, int]:
        return {TABLE: self.fingerprint}

    async def ensure_id(self, table: str) -> TableHistory:
        return HISTORY

    async def append(self, name: str, known: int, revision: Revision) -> TableHistory:
        return HISTORY.model_copy(update={"revisions": (revision,)})

    async def all(self) -> Mapping[str, TableHistory]:
        found = self.catalog.known(TABLE)
        return {} if found is None else {TABLE: found.history}


async def test_a_table_is_compared_again_whenever_its_fingerprint_changes_and_only_then() -> None:
    fakes = Healthy()
    await fakes.catalog.id_of(TABLE)
    await fakes.catalog.refresh()
    asked = fakes.asked
    await fakes.catalog.refresh()
    assert fakes.asked == asked
    fakes.fingerprint = 2
    await fakes.catalog.refresh()
    await fakes.catalog.refresh()
    assert fakes.asked == asked + 1
    assert fakes.catalog.unavailable() == frozenset()


async def test_a_change_that_could_not_be_compared_is_compared_at_the_next_look() -> None:
    """The server that has just reported it, or ZooKeeper, is unavailable by then."""
    fakes = Healthy()
    await fakes.catalog.id_of(TABLE)
    await fakes.catalog.refresh()
    fakes.fingerprint, fakes.away = 2, True
    await fakes.catalog.refresh()
    fakes.away = False
    asked = fakes.asked
    await fakes.catalog.refresh()
    assert fakes.asked == asked + 1
    await fakes.catalog.refresh()
    assert fakes.asked == asked + 1
