"""Sends granted blocks to the local replica, several tables at once, and reports what became of each.

It decides nothing: a block without a grant stays where it is, and every answer goes back as it came.
"""

from __future__ import annotations

import queue
import threading
import time
import zlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Literal

from blockhouse.config.endpoints import ClickHouse
from blockhouse.config.pipeline import Quorum
from blockhouse.errors import BlockhouseError, Permanent, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.asking import all_may_lack_a_part, presence
from blockhouse_aggregator.blocks.build import BlockBuilder, EncodedBlock
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.errors import Fault, ServerFault
from blockhouse_aggregator.clickhouse.model import InsertRequest
from blockhouse_aggregator.clickhouse.presence import Absent, Complete, Origin, Partial
from blockhouse_aggregator.clickhouse.tables import describe
from blockhouse_aggregator.faults.model import Point
from blockhouse_aggregator.faults.strike import strike_at
from blockhouse_aggregator.gate.messages import BlockKey, Drop, Go, Grant, Ready, Result

CONCURRENT_INSERTS = 4
LEAST_LIFETIME = 1.0
"""Seconds without which no try begins."""
PROOF_SECONDS = 15.0
"""How long the driver, and ZooKeeper behind it, may take to state that an insert may begin."""
TRIES = 3
"""Tries of one grant; beyond them the driver decides, so that a stuck table holds no insert slot indefinitely."""


@dataclass(frozen=True, slots=True)
class _Buffered:
    """A block's bytes and, of a rebuilt one, the builder that can separate its rows."""

    block: EncodedBlock
    builder: BlockBuilder | None


@dataclass(frozen=True, slots=True)
class _Done:
    """What one successful try found or did."""

    deduplicated: bool | None = None
    presence: Literal["", "absent", "complete", "partial"] = ""
    surplus: int = 0


class Inserter:
    """Buffers the bytes of sealed blocks until they are inserted or dropped. Thread-safe."""

    def __init__(
        self, stream: StreamId, clickhouse: ClickHouse, quorum: Quorum, report: Callable[[Result | Ready], None]
    ) -> None:
        self._stream = stream
        self._clickhouse = clickhouse
        self._quorum = quorum
        self._report = report
        self._buffered: dict[BlockKey, _Buffered] = {}
        self._lock = threading.Lock()
        self._pool = ThreadPoolExecutor(CONCURRENT_INSERTS, thread_name_prefix="insert")
        self._local = threading.local()
        self._replicas: list[Replica] = []
        self._asked: dict[BlockKey, queue.SimpleQueue[Go]] = {}
        self._abandoned = False

    def buffer(self, block: EncodedBlock, builder: BlockBuilder | None = None) -> None:
        """Keep a sealed block until it is granted or dropped; with `builder`, rows may be sent that are lacking."""
        with self._lock:
            self._buffered[key_of(block)] = _Buffered(block, builder)

    def drop(self, drop: Drop) -> None:
        """Forget the bytes of a block; nothing happens when there are none."""
        with self._lock:
            self._buffered.pop(drop.block, None)

    def grant(self, grant: Grant) -> None:
        """Start the insert of a granted block. The bytes are let go when it is stored or has failed."""
        with self._lock:
            buffered = self._buffered.pop(grant.block, None)
        if buffered is None:
            text = f"{grant.block.table} [{grant.block.begin}, {grant.block.end}]: this task does not buffer the block"
            self._report(_failure(grant.block, 0, 0.0, Retryable(text)))
        else:
            self._pool.submit(self._insert, grant, buffered)

    def go(self, go: Go) -> None:
        """The driver's answer to a `Ready`; one that no one waits for any more is of no meaning."""
        with self._lock:
            asked = self._asked.get(go.block)
        if asked is not None:
            asked.put(go)

    def abandon(self) -> None:
        """The driver is gone: nothing may begin any more."""
        with self._lock:
            self._abandoned = True
            asked = dict(self._asked)
        for block, answers in asked.items():
            answers.put(Go(block=block, refusal="the driver is gone"))

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

    def _insert(self, grant: Grant, buffered: _Buffered) -> None:
        """Every way this can end is reported: a block without a report would stay in flight indefinitely."""
        started = time.monotonic()
        attempt = 0
        tokens: bool | None = None
        error: BlockhouseError = Retryable(f"{grant.block.table}: the grant's deadline was over before the first try")
        try:
            while attempt < (1 if grant.repair else TRIES) and (left := _left(grant)) > LEAST_LIFETIME:
                attempt += 1
                strike_at(Point.BEFORE_INSERT, grant.faults if attempt == 1 else ())
                try:
                    if grant.ask_provenance:
                        done = self._complete(grant, buffered)
                    else:
                        now = self._replica().features().deduplication_token
                        before, tokens = tokens, now if tokens is None else tokens
                        done = self._send_whole(grant, buffered.block, before)
                except ServerFault as again:
                    error = again
                    if again.fault is not Fault.RESEND:
                        break
                    time.sleep(min(again.after * attempt, left))
                else:
                    strike_at(Point.AFTER_INSERT, grant.faults)
                    self._report(_success(grant.block, attempt, time.monotonic() - started, done))
                    return
        except BlockhouseError as refused:
            error = refused
        except Exception as bug:  # noqa: BLE001 - a bug here is a failed insert with a text, not a lost answer
            error = Retryable(f"{grant.block.table}: unexpected {bug!r}", after=5.0)
        self._report(_failure(grant.block, attempt, time.monotonic() - started, error))

    def _send_whole(self, grant: Grant, block: EncodedBlock, tokens: bool | None = None) -> _Done:
        """`tokens`: whether the first try's server had them, None in that try. Its fate is unknown then, and neither an
        ALTER nor another server may turn the block into another one: it is recognised by what it was sent with."""
        if block.rows == 0:
            return _Done()
        exact, by_token = grant.exact or tokens is False, grant.by_token or tokens is True
        sent = self._send(grant, block, block.body, block.rows, grant.token, exact=exact, by_token=by_token)
        return _Done(deduplicated=sent)

    def _complete(self, grant: Grant, buffered: _Buffered) -> _Done:
        """Insert only what the table's rows do not show. Raises Blocked when they cannot show which are missing."""
        block, builder = buffered.block, buffered.builder
        assert builder is not None, "provenance is only asked for rebuilt blocks"
        database, _, name = block.table.partition(".")
        table = describe(self._replica(), database, name)
        if table is None:
            raise Permanent(f"table {block.table} is gone", reason="UnknownTable")
        origin = Origin(self._stream.cluster, self._stream.partition, grant.topic, grant.sole)
        try:
            found = presence(self._replica(), table, grant, origin, builder.rows_by_offset())
        except ServerFault as fault:
            bound = grant.exact or grant.by_token
            if not bound or fault.fault is not Fault.REPLICA:
                raise
            if not all_may_lack_a_part(self._replica(), table, self._quorum.replicas):
                raise
            return self._send_whole(grant, block)
        surplus = sum(found.surplus.values())
        match found:
            case Complete():
                return _Done(presence="complete", surplus=surplus)
            case Absent():
                sent = self._send_whole(grant, block)
                return _Done(sent.deduplicated, "absent", surplus)
            case Partial():
                body, rows = builder.part(found.missing)
                deduplicated = self._send(grant, block, body, rows, f"{grant.token}+{zlib.crc32(body):08x}")
                return _Done(deduplicated, "partial", surplus)

    def _send(
        self,
        grant: Grant,
        block: EncodedBlock,
        body: bytes,
        rows: int,
        token: str,
        *,
        exact: bool = False,
        by_token: bool = False,
    ) -> bool | None:
        """Send rows of the block; returns whether the server had them already. Raises Retryable when the grant is over:
        since the clock was last read this process may have been frozen, or provenance asked, and its answer be as
        old as that freeze was long."""
        replica = self._replica()
        lifetime = _left(grant)
        if lifetime <= LEAST_LIFETIME:
            raise Retryable(f"{block.table}: the grant's deadline was over before the insert was sent")
        database, _, table = block.table.partition(".")
        request = InsertRequest(
            database=database,
            table=table,
            header=block.header,
            body=body,
            rows=rows,
            quorum=self._quorum.replicas,
            quorum_timeout=min(self._quorum.timeout, lifetime * 0.9),
            token=token,
            lifetime=lifetime,
            exact=exact,
            by_token=by_token,
            deduplicate=not grant.repair,
            before=lambda: self._prove(grant),
        )
        return replica.insert_native(request).deduplicated

    def _prove(self, grant: Grant) -> None:
        """Ask the driver, who asks ZooKeeper, whether the first byte may be sent now. Raises Retryable when not: since
        the grant was given this process, or both, may have been suspended, with their clocks. The answer may have
        waited here while this process was frozen: it counts within the grant's time only."""
        answers: queue.SimpleQueue[Go] = queue.SimpleQueue()
        with self._lock:
            if self._abandoned:
                raise Retryable(f"{grant.block.table}: the driver is gone")
            self._asked[grant.block] = answers
        try:
            self._report(Ready(block=grant.block))
            go = answers.get(timeout=max(0.1, min(PROOF_SECONDS, _left(grant))))
        except queue.Empty:
            raise Retryable(f"{grant.block.table}: the driver did not report that the insert may begin") from None
        finally:
            with self._lock:
                self._asked.pop(grant.block, None)
        if go.refusal:
            raise Retryable(f"{grant.block.table}: the insert may not begin: {go.refusal}")
        if _left(grant) <= LEAST_LIFETIME:
            raise Retryable(f"{grant.block.table}: the grant's deadline was over when the answer was read")


def _left(grant: Grant) -> float:
    """Seconds until the deadline, by wall-clock time: monotonic clocks of two hosts have nothing in common."""
    return grant.deadline_ms / 1000 - time.time()


def key_of(block: EncodedBlock) -> BlockKey:
    return BlockKey(table=block.table, begin=block.begin, end=block.end)


def _success(key: BlockKey, attempts: int, elapsed: float, done: _Done) -> Result:
    return Result(
        block=key,
        outcome="stored",
        attempts=attempts,
        elapsed=elapsed,
        deduplicated=done.deduplicated,
        presence=done.presence,
        surplus=done.surplus,
    )


def _failure(key: BlockKey, attempts: int, elapsed: float, error: BlockhouseError) -> Result:
    retryable = isinstance(error, Retryable)
    reason = (error.fault or Fault.RESEND) if isinstance(error, Retryable) else error.reason
    return Result(
        block=key,
        outcome="retryable" if retryable else "permanent",
        attempts=attempts,
        elapsed=elapsed,
        code=error.code,
        reason=reason,
        message=str(error),
    )
