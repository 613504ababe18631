"""Inserts the missing messages of a stream: block by block, each as an owner stores one whose fate it does not know.

Under the table's lock, with its claim, when no quorum is pending and no INSERT into the table runs any more, provenance
is asked again, and exactly the rows that it does not find are sent, with deduplication switched off: the server may
remember rows whose part is gone. Right before the first byte ZooKeeper has to confirm the lock, and Kafka that
everything of the block is done by what the group has committed. Whatever fails is begun again from the lock on.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

from blockhouse.errors import Blocked, BlockhouseError
from blockhouse.metadata.model import InFlight
from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.blocks.build import BlockBuilder, EncodedBlock
from blockhouse_aggregator.blocks.scan import Built
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.gate.messages import Go, Grant, Ready, Replay, ReplayBlock, Result
from blockhouse_aggregator.gate.messages import Rebuilt as RebuiltBlocks
from blockhouse_aggregator.repair.judging import TableJudged, cut
from blockhouse_aggregator.repair.standing import Standing
from blockhouse_aggregator.repair.survey import Surveyed, Table
from blockhouse_aggregator.runtime.ports import Lock
from blockhouse_aggregator.runtime.stream.block import BlockToStore
from blockhouse_aggregator.runtime.stream.outcomes import Condemned, Stored, TryAgain
from blockhouse_aggregator.runtime.stream.storing import Storing

BEYOND_THE_COMMITTED = "BeyondTheCommitted"
CANNOT_BE_REBUILT = "CannotBeRebuilt"
MOST_MESSAGES = 5_000
"""Of one block: what is in memory at a time."""
PATIENCE = 120.0
"""Seconds until a block has to be stored, after which it is reported and the next one begun."""

Progress = Callable[[int], None]
"""Called with how many more messages are done with."""


class Scanner(Protocol):
    """`blocks.scan.Scanner` is the real one."""

    def replay(self, order: Replay, finished: Callable[[], bool]) -> tuple[RebuiltBlocks, list[Built]]: ...


class Inserter(Protocol):
    """`blocks.inserting.Inserter` is the real one."""

    def buffer(self, block: EncodedBlock, builder: BlockBuilder | None = None) -> None: ...
    def grant(self, grant: Grant) -> None: ...
    def go(self, go: Go) -> None: ...


class World(Protocol):
    """What is asked right before an insert. Both block, and raise Retryable or Blocked: nothing may be sent then."""

    def check_no_insert_runs(self, table: ServerTable) -> None: ...

    def standing(self) -> Standing:
        """How the stream stands now."""
        ...

    def check_lock(self, lock: Lock) -> None:
        """Returns when ZooKeeper confirms that the lock is ours."""
        ...


@dataclass(frozen=True, slots=True)
class Refused:
    """Messages of a table, the first and the last, that were not loaded, and why."""

    table: str
    begin: int
    end: int
    reason: str
    message: str


class GrantedInsert:
    """`runtime.stream.storing.Task` over an inserter in this process. On one event loop, one insert at a time."""

    def __init__(
        self, world: World, topic_id: str, inserter: Callable[[Callable[[Result | Ready], None]], Inserter]
    ) -> None:
        self._world = world
        self._topic_id = topic_id
        self._loop = asyncio.get_running_loop()
        self.inserter = inserter(self._report)
        self._table: Table | None = None
        self._buffered: tuple[EncodedBlock, BlockBuilder] | None = None
        self._lock: Lock | None = None
        self._done: asyncio.Future[Result] | None = None
        self._refusal: BlockhouseError | None = None
        self._proving: set[asyncio.Task[None]] = set()

    def buffer(self, table: Table, block: EncodedBlock, builder: BlockBuilder) -> None:
        """What the next grant is of."""
        self._table, self._buffered = table, (block, builder)

    async def insert(self, grant: Grant, lock: Lock) -> Result:
        """With the table's lock held. Raises what the last check of the world raised: nothing was sent then."""
        assert self._table is not None, "nothing is buffered"
        assert self._buffered is not None
        await asyncio.to_thread(self._world.check_no_insert_runs, self._table.server)
        self._lock, self._refusal, self._done = lock, None, self._loop.create_future()
        self.inserter.buffer(*self._buffered)
        self.inserter.grant(grant)
        result = await self._done
        if self._refusal is not None and result.outcome != "stored":
            raise self._refusal
        return result

    async def prove(self, lock: Lock) -> None:
        """Raises Retryable when ZooKeeper does not confirm the lock."""
        await asyncio.to_thread(self._world.check_lock, lock)

    def _report(self, answer: Result | Ready) -> None:
        """From the inserter's threads."""
        self._loop.call_soon_threadsafe(self._take, answer)

    def _take(self, answer: Result | Ready) -> None:
        if isinstance(answer, Result):
            assert self._done is not None, "no insert was granted"
            if not self._done.done():
                self._done.set_result(answer)
        else:
            proving = asyncio.ensure_future(self._prove(answer))
            self._proving.add(proving)
            proving.add_done_callback(self._proven)

    def _proven(self, proving: asyncio.Task[None]) -> None:
        self._proving.discard(proving)
        error = None if proving.cancelled() else proving.exception()
        if error is not None and self._done is not None and not self._done.done():
            self._done.set_exception(error)  # a defect: it ends the command

    async def _prove(self, ready: Ready) -> None:
        try:
            await asyncio.to_thread(self._check, ready)
        except BlockhouseError as error:
            self._refusal = error
        self.inserter.go(Go(block=ready.block, refusal=str(self._refusal or "")))

    def _check(self, ready: Ready) -> None:
        """Raises Blocked when the block is not, or no longer, below what is done; Retryable."""
        assert self._table is not None
        assert self._lock is not None
        now = self._world.standing()
        done = now.done_below(self._table.history.id) if now.topic_id == self._topic_id else 0
        if ready.block.end >= done:
            text = f"{ready.block.table} [{ready.block.begin}, {ready.block.end}] of {now.stream}: only what is below "
            raise Blocked(f"{text}{done} is done by what the group has committed", reason=BEYOND_THE_COMMITTED)
        self._world.check_lock(self._lock)


@dataclass(slots=True)
class Filling:
    """Of one stream, whose topic has `standing.topic_id`. `refused` are the messages that were not loaded."""

    standing: Standing
    storing: Storing
    scanner: Scanner
    task: GrantedInsert
    most_rows: int
    progress: Progress = lambda _: None
    patience: float = PATIENCE
    refused: list[Refused] = field(default_factory=list)

    async def fill(self, found: Surveyed) -> None:
        """Load what is missing; what cannot be is in `refused`. Raises Retryable when the log does not answer."""
        for judged in found.judged:
            for offsets in cut(judged.messages, self.most_rows, MOST_MESSAGES):
                await self._load(judged, found.tables[judged.table], offsets)
                self.progress(len(offsets))

    async def _load(self, judged: TableJudged, table: Table, offsets: Sequence[int]) -> None:
        """These messages, which follow each other in the table's order, in as few blocks as they fit in."""
        waiting = [tuple(offsets)]
        while waiting:
            piece = waiting.pop(0)
            built = await asyncio.to_thread(self._rebuilt, table.history, piece)
            if built is not None:
                await self._store(table, *built)
            elif len(piece) > 1:
                waiting[:0] = _halves(piece)
            else:
                text = "the message cannot be decoded, or is too large, and there is no dead letter of it"
                self.refused.append(Refused(judged.table, piece[0], piece[0], CANNOT_BE_REBUILT, text))

    def _rebuilt(self, history: TableHistory, piece: Sequence[int]) -> Built | None:
        """None when the first or the last of them cannot be, or they do not fit into one block."""
        assert history.current is not None  # what has no revision is not judged
        block = ReplayBlock(table=history.name, begin=piece[0], end=piece[-1], revision=history.current.number)
        order = Replay(round=0, blocks=(block,), catalog=(history,), topic_id=self.standing.topic_id, careful=True)
        _, built = self.scanner.replay(order, lambda: False)
        return built[0] if built else None

    async def _store(self, table: Table, block: EncodedBlock, builder: BlockBuilder) -> None:
        to_store = BlockToStore(
            stream=self.standing.stream,
            topic_id=self.standing.topic_id,
            table=table.server,
            intent=InFlight(block.begin, block.end, block.messages, block.revision, block.crc, 0),
            revision=table.history.current,
            fresh=False,
            sole=not self.standing.former,
            repair=True,
        )
        end = time.monotonic() + self.patience
        while True:
            self.task.buffer(table, block, builder)
            outcome = await self.storing.store(to_store, self.task)
            match outcome:
                case Stored():
                    return
                case TryAgain(after=after) if time.monotonic() + after < end:
                    await asyncio.sleep(after)
                case TryAgain(message=message):
                    self.refused.append(Refused(block.table, block.begin, block.end, "NotStored", message))
                    return
                case Condemned(reason=reason, message=message):
                    self.refused.append(Refused(block.table, block.begin, block.end, reason, message))
                    return


def _halves(piece: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    middle = len(piece) // 2
    yield piece[:middle]
    yield piece[middle:]
