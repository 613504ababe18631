"""Leases and the workers that carry them out: processes of their own, joined to the driver by the gate's messages.

A worker holds bytes, inserts what it is granted, and knows nothing. Its tries follow `blocks.inserting`.
"""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from blockhouse.errors import BlockhouseError, Retryable
from blockhouse.gate.messages import Hello
from blockhouse_aggregator.blocks.inserting import CONCURRENT_INSERTS, LEAST_LIFETIME, PROOF_SECONDS, TRIES
from blockhouse_aggregator.clickhouse.errors import Fault, ServerFault
from blockhouse_aggregator.clickhouse.presence import Absent, Complete, Origin, Partial
from blockhouse_aggregator.gate.messages import (
    BlockKey,
    Bye,
    Drop,
    Finish,
    Go,
    Grant,
    Ready,
    Rebuilt,
    Replay,
    Result,
    Scan,
    Sealed,
    Stop,
    Trouble,
    Welcome,
)
from blockhouse_aggregator.spark.task import LeaseFigures, LeaseSpec
from tests.simulation import provenance, reading
from tests.simulation.clickhouse import Row
from tests.simulation.clock import START, Process
from tests.simulation.logs import Content, Message
from tests.simulation.reader import Reader, Unreadable
from tests.simulation.reading import Bytes

if TYPE_CHECKING:
    from tests.simulation.replica import Node

GATE = 0.0005
LOOK = 0.2
"""Seconds between two reads of the log."""
UNREPORTED = 0.3
"""How often a client does not report the leader epoch of its position, in worlds in which leaders change."""
NOTHING = Content([], [(0, 0, 0)], [(0, 0)])
"""What a client has read that no broker has answered."""


class GateSession:
    """The driver's end, in place of `gate.server.StreamSession`."""

    def __init__(self, worker: Worker, hello: Hello) -> None:
        self.hello = hello
        self.proof = "proof"
        self.gone = asyncio.Event()
        self._worker = worker
        self._heard: asyncio.Queue[Any] = asyncio.Queue()
        self.broken = False

    def send(self, message: Any) -> None:
        if not self.broken:
            if isinstance(message, Grant):
                self._worker.node.granted(self, message)
            self._worker.loop.call_later(GATE, self._worker.hear, message, context=self._worker.process.context)

    async def receive(self) -> Any:
        return None if self.broken and self._heard.empty() else await self._heard.get()

    def put(self, message: Any) -> None:
        """Called in the driver."""
        self._heard.put_nowait(message)

    def broke(self) -> None:
        self.broken = True
        self._heard.put_nowait(None)

    def close(self) -> None:
        self.gone.set()
        if not self.broken:
            self.broken = True
            self._worker.loop.call_later(GATE, self._worker.hear, None, context=self._worker.process.context)


class Worker:
    """One task of one lease, in a process of its own."""

    def __init__(self, node: Node, spec: LeaseSpec, job: asyncio.Future[LeaseFigures]) -> None:
        self.node = node
        self.world = node.world
        self.loop = node.world.loop
        self.spec = spec
        self.job = job
        self.driver = node.driver
        self.process = Process(f"worker {node.name} {spec.stream}#{spec.number}")
        self.log = node.log_of(spec.stream)
        self._reader = Reader(self.world, self.log, lambda: node.reads(self.log))
        self.held: dict[BlockKey, Bytes] = {}
        self.inserting: dict[BlockKey, Grant] = {}
        self.known: set[str] = set()
        """Tables whose columns the driver has sent."""
        self._orders: asyncio.Queue[Any] = asyncio.Queue()
        self._asked: dict[BlockKey, asyncio.Future[str]] = {}
        self._finish = False
        self._slots = asyncio.Semaphore(CONCURRENT_INSERTS)
        self._running: set[asyncio.Task[None]] = set()
        self.session: GateSession | None = None
        self._quorum: Any = None

    def hear(self, message: Any) -> None:
        """A message of the driver; None when it is gone."""
        match message:
            case Grant():
                task = asyncio.ensure_future(self._insert(message))
                self._running.add(task)
                task.add_done_callback(self._running.discard)
            case Go():
                if (asked := self._asked.get(message.block)) is not None and not asked.done():
                    asked.set_result(message.refusal)
            case Drop():
                self.held.pop(message.block, None)
            case Finish():
                self._finish = True
            case Scan() | Replay() | Welcome():
                self._finish = False
                self._orders.put_nowait(message)
            case _:
                self._finish = True
                self._orders.put_nowait(message)

    def report(self, message: Any) -> None:
        session = self.session
        if session is not None and not session.broken and self.driver.alive:
            self.loop.call_later(GATE, session.put, message, context=self.driver.context)

    async def run(self) -> None:
        await asyncio.sleep(self.world.random.uniform(0.03, 0.4))
        spec = self.spec
        hello = Hello(work=str(spec.stream), epoch=spec.epoch, lease=spec.number, pid=1, proof="", nonce="")
        self.session = GateSession(self, hello)
        leases = self.node.aggregator.leases
        self.loop.spawn(leases.accept(self.session), self.driver)
        message = await self._orders.get()
        figures = LeaseFigures(str(spec.stream))
        if isinstance(message, Welcome):
            self._quorum = message.quorum
            while isinstance(order := await self._orders.get(), Scan | Replay):
                await self._carry_out(order)
                figures.rounds += 1
            if self._running:
                await asyncio.wait(set(self._running))
            if isinstance(order, Stop):
                self.report(Bye())
        await asyncio.sleep(0.01)
        self.process.alive = False
        self.node.workers.pop(self.process.name, None)
        self.job.remove_done_callback(lambda _: None)
        self.loop.call_later(GATE, _finish, self.job, figures, context=self.driver.context)

    # --- reading --------------------------------------------------------------------------------------------

    async def _carry_out(self, order: Scan | Replay) -> None:
        self.known |= {history.name for history in order.catalog}
        try:
            if isinstance(order, Scan):
                await self._scan(order)
            else:
                await self._replay(order)
        except Unreadable as error:
            self.report(Trouble(reason=error.reason, message="the log is another", retryable=False))

    def _now_ms(self) -> int:
        return int((START + self.loop.time()) * 1000)

    async def _scan(self, order: Scan) -> None:
        started, chances = self.loop.time(), self.world.setting.chances
        most = self.world.random.randint(2, 12)
        sealed_at = None
        self._reader.seek(order.start, order.leader_epoch)
        while True:
            now = self.loop.time()
            content = self._reader.read() or NOTHING
            end = content.end if order.stop is None else min(content.end, order.stop)
            busy = end > order.start and not reading.waits_for_more(content, order, end, most)
            if busy and sealed_at is None:
                sealed_at = now + max(self.world.setting.max_age, order.max_age if not order.seal_at_end else 0)
            if self._finish or now >= started + order.max_seconds:
                break
            if busy and (end - order.start >= most or order.seal_at_end or order.stop is not None):
                break
            if now >= (sealed_at if sealed_at is not None else started + order.patience):
                break
            await asyncio.sleep(LOOK)
        end = max(end, order.start)
        cut = 1 if self.world.chance(chances.cut) else 0
        tables, now_ms, stream = self.node.numbers, self._now_ms(), str(self.spec.stream)
        found = reading.scan(
            content, order, end, stream=stream, most=most, cut=cut, numbers=tables, known=self.known, now_ms=now_ms
        )
        self._reader.ended(found.sealed.stop)
        if self.world.setting.event == "election" and self.world.chance(UNREPORTED):
            found.sealed = found.sealed.model_copy(update={"leader_epoch": -1})
        if self.world.setting.event == "cut" and found.sealed.leader_epoch < 0:
            # Of a position whose epoch the client does not know no one can find out (the hazard LeaderEpochUnknown).
            found.sealed = found.sealed.model_copy(update={"leader_epoch": content.epoch_at(found.sealed.stop)})
        await asyncio.sleep(self.world.random.uniform(0.002, 0.02))
        self.log.dead.update(found.dead)
        self.held.update(found.blocks)
        sealed = found.sealed.model_copy(update={"elapsed": self.loop.time() - started})
        self.report(self._lied(sealed) if self.world.chance(chances.misreport) else sealed)

    def _lied(self, sealed: Sealed) -> Sealed:
        """A client that delivered messages twice: counted twice in their block, or as messages without a table."""
        if self.world.random.random() < 0.5:
            self.world.count("false report")
            return sealed.model_copy(update={"headless": sealed.headless + sealed.stop - sealed.start + 1})
        tables = list(sealed.tables)
        for index, table in enumerate(tables):
            if table.block is not None:
                self.world.count("false report")
                block = table.block.model_copy(update={"messages": table.block.messages + 50})
                tables[index] = table.model_copy(update={"seen": table.seen + 50, "block": block})
                break
        return sealed.model_copy(update={"tables": tuple(tables)})

    async def _replay(self, order: Replay) -> None:
        last = max(block.end for block in order.blocks)
        self._reader.ended(-1)
        self._reader.seek(min(block.begin for block in order.blocks))
        while (content := self._reader.read() or NOTHING).end <= last:
            if self._finish:
                self.report(Trouble(reason="Retryable", message="interrupted", retryable=True))
                return
            await asyncio.sleep(LOOK)
        await asyncio.sleep(self.world.random.uniform(0.005, 0.05))
        self._reader.ended(-1)
        numbers, stream = self.node.numbers, str(self.spec.stream)
        found = reading.rebuild(content, order, stream=stream, numbers=numbers, known=self.known, now_ms=self._now_ms())
        for key, (content, built) in list(found.items()):
            if len(content.messages) > 2 and self.world.chance(self.world.setting.chances.corrupt_replay):
                self.world.count("corrupt replay")
                bad = replace(content, messages=(content.messages[0], *content.messages[2:]))
                found[key] = (bad, bad.describe(built.table, stream, built.oldest_ms))
        self.held.update({key: content for key, (content, _) in found.items()})
        requested = [BlockKey(table=b.table, begin=b.begin, end=b.end) for b in order.blocks]
        missing = tuple(key for key in requested if key not in found)
        self.report(Rebuilt(round=order.round, blocks=tuple(built for _, built in found.values()), missing=missing))

    # --- inserting ------------------------------------------------------------------------------------------

    async def _insert(self, grant: Grant) -> None:
        content = self.held.pop(grant.block, None)
        started, attempt = self.loop.time(), 0
        if content is None:
            self.report(_failure(grant.block, 0, 0.0, ServerFault("not held", fault=Fault.RESEND)))
            return
        self.inserting[grant.block] = grant
        error: BlockhouseError = ServerFault("the deadline was over", fault=Fault.RESEND)
        async with self._slots:
            while attempt < TRIES and (left := self._left(grant)) > LEAST_LIFETIME:
                attempt += 1
                self.world.strike("before insert", self.node.number)
                try:
                    seen, presence = await self._try(grant, content, left)
                except ServerFault as again:
                    error = again
                    if again.fault is not Fault.RESEND:
                        break
                    await asyncio.sleep(min(again.after * attempt, left))
                except BlockhouseError as refused:
                    error = refused
                    break
                else:
                    self.world.strike("after insert", self.node.number)
                    del self.inserting[grant.block]
                    self.report(
                        Result(
                            block=grant.block, outcome="stored", attempts=attempt,
                            elapsed=self.loop.time() - started, deduplicated=seen, presence=presence,
                        )
                    )  # fmt: skip
                    return
        del self.inserting[grant.block]
        self.report(_failure(grant.block, attempt, self.loop.time() - started, error))

    def _left(self, grant: Grant) -> float:
        return grant.deadline_ms / 1000 - self.node.unix()

    async def _try(self, grant: Grant, content: Bytes, left: float) -> tuple[bool, Any]:
        if not grant.ask_provenance:
            return await self._send(grant, content, content.messages), ""
        node, stream = self.node, self.spec.stream
        described = node.shard_port.described(grant.block.table)
        if described is None:
            raise node.server.error(60, "no such table")
        question = provenance.presence(
            node.server, node.shard.tables[content.table], node.stream_number(stream), described=described, grant=grant,
            origin=Origin(stream.cluster, stream.partition, grant.topic, grant.sole),
            expected=dict.fromkeys(content.offsets, 1),
        )  # fmt: skip
        match await node.server.call(question, left):
            case Complete():
                return False, "complete"
            case Absent():
                return await self._send(grant, content, content.messages), "absent"
            case Partial(missing=missing):
                lacking = {offset for offset, _ in missing}
                return await self._send(
                    grant, content, tuple(m for m in content.messages if m[0] in lacking)
                ), "partial"
        raise AssertionError("one row a message is never ambiguous")

    async def _send(self, grant: Grant, content: Bytes, messages: tuple[Message, ...]) -> bool:
        node = self.node
        left = self._left(grant)
        if left <= LEAST_LIFETIME:
            raise ServerFault("the deadline was over when provenance had been asked", fault=Fault.RESEND)
        await self._prove(grant, left)
        if self._left(grant) <= LEAST_LIFETIME:
            raise ServerFault("the deadline was over when the proof was read", fault=Fault.RESEND)
        if grant.ask_provenance:
            self.world.strike("replay sent", node.number)
        number, split = node.stream_number(self.spec.stream), self.world.setting.split
        node.oracle.inserts(self.spec.stream, content, grant)
        parts = []
        for partition in range(split):
            rows: tuple[Row, ...] = tuple((number, *m) for m in messages if m[0] % split == partition)
            if rows:
                parts.append(((number, partition, rows), rows))
        table = node.shard.tables[content.table]
        timeout = min(self._quorum.timeout, left * 0.9)
        return bool(await node.server.call(node.shard.insert(node.server, table, parts, timeout), left))

    async def _prove(self, grant: Grant, left: float) -> None:
        """Ask the driver right before the first byte."""
        asked = self._asked[grant.block] = self.loop.create_future()
        self.report(Ready(block=grant.block))
        try:
            refusal = await asyncio.wait_for(asked, min(PROOF_SECONDS, left))
        except TimeoutError:
            refusal = "no answer"
        finally:
            self._asked.pop(grant.block, None)
        if refusal:
            raise Retryable(refusal)


def _finish(job: asyncio.Future[LeaseFigures], figures: LeaseFigures) -> None:
    if not job.done():
        job.set_result(figures)


def _failure(key: BlockKey, attempts: int, elapsed: float, error: BlockhouseError) -> Result:
    return Result(
        block=key,
        outcome="retryable" if isinstance(error, Retryable) else "permanent",
        attempts=attempts,
        elapsed=elapsed,
        code=error.code,
        reason=(error.fault or Fault.RESEND) if isinstance(error, Retryable) else error.reason,
        message=str(error),
    )
