"""A table's lock is released when the insert under it has ended, not when the caller stops waiting for it."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Mapping, Sequence

import pytest

from blockhouse.errors import Retryable
from blockhouse.metadata.model import InFlight
from blockhouse.streams import StreamId
from blockhouse_aggregator.clickhouse.presence import Origin, StoredRows
from blockhouse_aggregator.clickhouse.quorum import QuorumSnapshot
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.gate.messages import Grant, Result
from blockhouse_aggregator.runtime.ports import Lock
from blockhouse_aggregator.runtime.stream.block import BlockToStore
from blockhouse_aggregator.runtime.stream.outcomes import Stored
from blockhouse_aggregator.runtime.stream.storing import Storing

TABLE = ServerTable("default", "t", "MergeTree", False, None, None, (), 0, 0, frozenset(), (), "")


class Everything:
    """Shard, lock and task at once; the insert ends when `answer` is set, and fails when the task is `gone`."""

    valid = True

    def __init__(self) -> None:
        self.inserting, self.answer, self.released = asyncio.Event(), asyncio.Event(), False
        self.gone = False

    async def acquire(self, table: str, timeout: float, table_path: str | None = None) -> Everything:
        return self

    async def release(self, lock: Everything) -> None:
        self.released = True

    async def prove(self, lock: Lock) -> None:
        raise NotImplementedError

    async def insert(self, grant: Grant, lock: Lock) -> Result:
        self.inserting.set()
        await self.answer.wait()
        if self.gone:
            raise Retryable("the task is gone")
        return Result(block=grant.block, outcome="stored", attempts=1, elapsed=0)

    async def claimed(self, table: ServerTable, cluster: str, topic: str) -> bool:
        return True

    async def describe(self, table: str) -> ServerTable | None:
        raise NotImplementedError

    async def fingerprints(self) -> Mapping[str, int]:
        raise NotImplementedError

    async def quorum(self, table: ServerTable) -> QuorumSnapshot:
        raise NotImplementedError

    async def failed_parts(self, table: ServerTable) -> tuple[str, ...]:
        raise NotImplementedError

    async def blocks_since(self, table: ServerTable, since_ms: int, *, older_than_ms: int) -> int:
        raise NotImplementedError

    async def rows_removed(self, table: ServerTable, since_ms: int) -> str:
        raise NotImplementedError

    async def altered_since(self, table: ServerTable, since_ms: int) -> bool:
        raise NotImplementedError

    async def stored(
        self, table: ServerTable, origin: Origin, begin: int, end: int, failed: Sequence[str] = ()
    ) -> StoredRows:
        raise NotImplementedError


BLOCK = BlockToStore(StreamId("a", "t", 0), "id", TABLE, InFlight(0, 9, 10, 1, 0, 0), None, fresh=True)
PAUSE = 0.02


async def test_a_dropped_stream_keeps_the_lock_until_its_running_insert_has_ended() -> None:
    fakes = Everything()
    storing = Storing(fakes, fakes, lifetime=10, now_ms=lambda: 0, slots=1)
    work = asyncio.ensure_future(storing.store(BLOCK, fakes))
    await fakes.inserting.wait()
    work.cancel()
    done, _ = await asyncio.wait({work}, timeout=0.05)
    assert not done
    assert not fakes.released
    fakes.answer.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    assert fakes.released


async def test_a_task_that_is_gone_when_its_stream_is_dropped_is_no_internal_error() -> None:
    """asyncio reports it when no caller retrieves what the insert raised."""
    reported: list[dict[str, object]] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
    fakes = Everything()
    storing = Storing(fakes, fakes, lifetime=10, now_ms=lambda: 0, slots=1)
    work = asyncio.ensure_future(storing.store(BLOCK, fakes))
    await fakes.inserting.wait()
    work.cancel()
    fakes.gone = True
    fakes.answer.set()
    with pytest.raises(asyncio.CancelledError):
        await work
    del work  # whose traceback keeps the insert, as does the step of the loop in which it ended
    await asyncio.sleep(0)
    gc.collect()
    assert not reported


async def test_how_long_a_block_waited_for_the_lock_is_reported() -> None:
    fakes = Everything()
    storing = Storing(fakes, fakes, lifetime=10, now_ms=lambda: 0, slots=1)
    first = asyncio.ensure_future(storing.store(BLOCK, fakes))
    await fakes.inserting.wait()
    second = asyncio.ensure_future(storing.store(BLOCK, fakes))
    await asyncio.wait({second}, timeout=PAUSE)
    fakes.answer.set()
    early, late = await first, await second
    assert isinstance(early, Stored)
    assert isinstance(late, Stored)
    assert late.lock_wait > PAUSE / 2
    assert late.lock_wait > early.lock_wait  # which does not count the insert
