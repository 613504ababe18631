"""Sends granted blocks to the local replica, several tables at once, and reports what became of each.

It decides nothing: a block without a grant stays where it is, and an answer that is not a plain "ok" goes back as it came.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

from blockhouse.config.endpoints import ClickHouse
from blockhouse.config.pipeline import Quorum
from blockhouse.errors import BlockhouseError, Permanent, Retryable
from blockhouse_aggregator.blocks.build import EncodedBlock
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.errors import Fault, ServerFault
from blockhouse_aggregator.clickhouse.model import InsertRequest, InsertResult
from blockhouse_aggregator.gate.messages import BlockKey, Drop, Grant, Result

CONCURRENT_INSERTS = 4
TRIES = 3
"""Tries of one grant; beyond them the driver decides, so that a stuck table holds no insert slot for ever."""


class Inserter:
    """Holds the bytes of sealed blocks until they are inserted or dropped. Thread-safe."""

    def __init__(self, clickhouse: ClickHouse, quorum: Quorum, report: Callable[[Result], None]) -> None:
        self._clickhouse = clickhouse
        self._quorum = quorum
        self._report = report
        self._held: dict[BlockKey, EncodedBlock] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(CONCURRENT_INSERTS, thread_name_prefix="insert")
        self._local = threading.local()
        self._replicas: list[Replica] = []

    def hold(self, block: EncodedBlock) -> None:
        with self._lock:
            self._held[key_of(block)] = block

    def drop(self, drop: Drop) -> None:
        with self._lock:
            self._held.pop(drop.block, None)

    def drop_all(self) -> None:
        with self._lock:
            self._held.clear()

    def grant(self, grant: Grant) -> None:
        """Start the insert of a granted block. The bytes are let go when it is stored or has failed."""
        with self._lock:
            block = self._held.pop(grant.block, None)
        if block is None:
            text = f"{grant.block.table} [{grant.block.begin}, {grant.block.end}]: this task does not hold the block"
            self._report(_failure(grant.block, 0, 0.0, Retryable(text)))
        else:
            self._pool.submit(self._insert, grant, block)

    def close(self) -> None:
        """Wait for running inserts, then close the connections."""
        self._pool.shutdown(wait=True)
        for replica in self._replicas:
            replica.close()

    def _replica(self) -> Replica:
        replica: Replica | None = getattr(self._local, "replica", None)
        if replica is None:
            replica = self._local.replica = Replica(self._clickhouse)
            self._replicas.append(replica)
        return replica

    def _insert(self, grant: Grant, block: EncodedBlock) -> None:
        started = time.monotonic()
        attempt = 0
        error: BlockhouseError = Retryable("not tried")
        while attempt < TRIES:
            attempt += 1
            left = grant.lifetime - (time.monotonic() - started)
            if left <= self._quorum.timeout * 0.1:
                break
            try:
                stored = self._send(grant, block, left)
            except Permanent as refused:
                self._report(_failure(grant.block, attempt, time.monotonic() - started, refused))
                return
            except Retryable as again:
                error = again
                if not isinstance(again, ServerFault) or again.fault is not Fault.RESEND:
                    break
                time.sleep(min(again.after * attempt, max(0.0, left)))
            else:
                self._report(_success(grant.block, attempt, time.monotonic() - started, stored))
                return
        self._report(_failure(grant.block, attempt, time.monotonic() - started, error))

    def _send(self, grant: Grant, block: EncodedBlock, lifetime: float) -> InsertResult:
        if block.rows == 0:
            return InsertResult(0.0, None)
        database, _, table = block.table.partition(".")
        request = InsertRequest(
            database=database,
            table=table,
            header=block.header,
            body=block.body,
            rows=block.rows,
            quorum=self._quorum.replicas,
            quorum_timeout=min(self._quorum.timeout, lifetime * 0.9),
            token=grant.token,
            lifetime=lifetime,
        )
        return self._replica().insert_native(request)


def key_of(block: EncodedBlock) -> BlockKey:
    return BlockKey(table=block.table, begin=block.begin, end=block.end)


def _success(key: BlockKey, attempts: int, elapsed: float, stored: InsertResult) -> Result:
    return Result(block=key, outcome="stored", attempts=attempts, elapsed=elapsed, deduplicated=stored.deduplicated)


def _failure(key: BlockKey, attempts: int, elapsed: float, error: BlockhouseError) -> Result:
    permanent = isinstance(error, Permanent)
    return Result(
        block=key,
        outcome="permanent" if permanent else "retryable",
        attempts=attempts,
        elapsed=elapsed,
        code=getattr(error, "code", None),
        reason=error.reason if isinstance(error, Permanent) else str(getattr(error, "fault", Fault.RESEND)),
        message=str(error),
    )
