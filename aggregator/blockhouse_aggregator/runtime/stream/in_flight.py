"""The blocks of one stream that are in flight: each is stored, tried again, or settled without its bytes.

One direction: the stream's owner asks, what became of the block is an event of the protocol, which the owner applies.
Nothing here calls the owner back.
"""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeGuard, assert_never

import structlog

from blockhouse.metadata.model import InFlight
from blockhouse.streams import StreamId
from blockhouse_aggregator.gate.messages import BlockKey, BuiltBlock
from blockhouse_aggregator.protocol.events import Condemned, Insert, InsertFailed, Stored
from blockhouse_aggregator.runtime.clock import loop_time, pause
from blockhouse_aggregator.runtime.stream import outcomes
from blockhouse_aggregator.runtime.stream.block import BlockToStore
from blockhouse_aggregator.runtime.stream.context import StreamContext
from blockhouse_aggregator.runtime.stream.current_task import CurrentTask
from blockhouse_aggregator.runtime.stream.outcomes import InsertOutcome
from blockhouse_aggregator.runtime.stream.provenance import without_bytes
from blockhouse_aggregator.runtime.stream.reporting import StreamReport

log = structlog.get_logger(__name__)

BACKOFF_FIRST, BACKOFF_LAST = 0.2, 10.0
UNUSABLE = outcomes.TryAgain("the table is not usable now", after=2.0)
LEAST_WAIT, LEAST_QUESTION_WAIT = 0.2, 1.0
"""Least seconds between two attempts to store a block, and between two questions to provenance."""

Settled = Stored | Condemned | InsertFailed
"""What became of a block, for the protocol."""


@dataclass(frozen=True, slots=True)
class _Retry:
    """When a table's replay may be tried again."""

    tries: int = 0
    at: float = 0.0


class BlocksInFlight:
    """Of one stream in one epoch, which is over when `closed` is set. Used on the event loop only."""

    def __init__(
        self, stream: StreamId, context: StreamContext, report: StreamReport, task: CurrentTask, closed: asyncio.Event
    ) -> None:
        self._stream = stream
        self._context = context
        self._report = report
        self._task = task
        self._closed = closed
        self._retries: dict[int, _Retry] = {}
        self._built: dict[BlockKey, BuiltBlock] = {}
        self._sole = True

    def of_sole_topic(self, sole: bool) -> None:
        """Whether the stream's topic was never created again. Caller: the owner, before anything is stored."""
        self._sole = sole

    def built(self, blocks: Iterable[BuiltBlock]) -> None:
        """The task holds these blocks' bytes, and their round is going to be committed."""
        self._built.update({_key(block): block for block in blocks})

    # --- when a table's replay may be tried again -----------------------------------------------------------

    def may_replay(self, table_id: int, now: float) -> bool:
        """Whether the wait after the last failed attempt is over, on the loop's clock."""
        retry = self._retries.get(table_id)
        return retry is None or retry.at <= now

    def never_replay(self, table_id: int) -> None:
        """The block cannot be rebuilt. Caller: the owner, before it asks `settle_without_bytes`."""
        self._retries[table_id] = _Retry(at=math.inf)

    def replay_now(self, table_id: int) -> None:
        """Caller: `StalledBlocks`, when what the block waits for may be gone."""
        self._retries.pop(table_id, None)

    # --- what becomes of a block ----------------------------------------------------------------------------

    async def store(self, insert: Insert, topic_id: str) -> Settled | None:
        """Store one block; None when the epoch is over. As long as no insert was granted, the task still holds the
        bytes: try again."""
        while not self._closed.is_set():
            block = self.to_store(insert.table, insert.intent, topic_id, fresh=insert.fresh)
            if block is None:
                return self._settled(insert.table, insert.intent, UNUSABLE)
            outcome = await self._context.storing.store(block, self._task)
            if not (self._task.present and _not_granted(outcome)):
                return self._settled(insert.table, insert.intent, outcome)
            self._report.waits(block.table.full_name, outcome.message)
            await pause(self._closed, max(LEAST_WAIT, outcome.after))
        return None

    async def settle_without_bytes(
        self, table_id: int, intent: InFlight, topic_id: str, reason: str, *, current: Callable[[], bool]
    ) -> Settled | None:
        """Ask provenance until there is an answer, while the block is the `current` one: nothing else decides about it
        meanwhile. `reason` is why it cannot be rebuilt, for which it stays stalled unless it proves to be stored."""
        while not self._closed.is_set() and current():
            block = self.to_store(table_id, intent, topic_id, fresh=False)
            outcome: InsertOutcome = UNUSABLE
            if block is not None:
                outcome = without_bytes(await self._context.storing.provenance(block), reason)
            if not isinstance(outcome, outcomes.TryAgain):
                return self._settled(table_id, intent, outcome)
            self._report.waits(self._context.catalog.name(table_id), outcome.message)
            await pause(self._closed, max(LEAST_QUESTION_WAIT, outcome.after))
        return None

    def to_store(self, table_id: int, intent: InFlight, topic_id: str, *, fresh: bool) -> BlockToStore | None:
        """The block as `Storing` takes it; None while the server's table is not known."""
        known = self._context.catalog.by_id(table_id)
        if known is None or known.server is None:
            return None
        revision = known.history.revision(intent.encoded_with)
        return BlockToStore(self._stream, topic_id, known.server, intent, revision, fresh, self._sole)

    def _settled(self, table_id: int, intent: InFlight, outcome: InsertOutcome) -> Settled:
        """Report the outcome; the event that it is for the protocol."""
        table = self._context.catalog.name(table_id)
        begin, end = intent.begin, intent.end
        if outcome.result is not None and outcome.result.surplus:
            self._report.surplus(table, table_id, f"[{begin}, {end}]", outcome.result.surplus)
        block = BlockKey(table=table, begin=begin, end=end)
        built = self._built.pop(block, None)
        match outcome:
            case outcomes.Stored():
                self._report.stored(block, built, outcome, self._context.now_ms())
                self._retries.pop(table_id, None)
                self._context.fault("", "")
                return Stored(table_id, begin, end)
            case outcomes.Condemned(reason=reason):
                self._report.condemned(table, outcome)
                return Condemned(table_id, reason)
            case outcomes.TryAgain():
                self._report.failed(table, outcome)
                self._back_off(table_id, outcome)
                return InsertFailed(table_id, begin, end)
            case _:
                assert_never(outcome)

    def _back_off(self, table_id: int, outcome: outcomes.TryAgain) -> None:
        tries = self._retries.get(table_id, _Retry()).tries + 1
        wait = min(BACKOFF_LAST, max(outcome.after, BACKOFF_FIRST * 2 ** min(tries, 8)))
        self._retries[table_id] = _Retry(tries, loop_time() + wait * self._context.random.uniform(0.5, 1.0))
        if outcome.fault:
            self._context.fault(outcome.fault, outcome.message)


def _not_granted(outcome: InsertOutcome) -> TypeGuard[outcomes.TryAgain]:
    """No insert was granted, and the task's bytes are still good."""
    return isinstance(outcome, outcomes.TryAgain) and outcome.result is None and not outcome.rebuild


def _key(block: BuiltBlock) -> BlockKey:
    return BlockKey(table=block.table, begin=block.begin, end=block.end)
