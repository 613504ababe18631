"""One server of ClickHouse: what its clients ask of it, and whether it reaches ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any

from blockhouse.errors import BlockhouseError
from blockhouse_aggregator.clickhouse.errors import classify, interrupted, unreachable
from tests.simulation.clock import Process
from tests.simulation.world import World

if TYPE_CHECKING:
    from tests.simulation.clickhouse import Part, Table


class Server:
    """One replica: a process, and a session of its own in ZooKeeper."""

    def __init__(self, world: World, number: int, zone: int) -> None:
        self.world = world
        self.number = number
        self.zone = zone
        self.process = Process(f"clickhouse r{number}")
        self.heard = 0.0
        self.active = True
        self.idle_until = 0.0
        """It was started before its former session was over: until then it answers, and is not active."""
        self.kept: list[tuple[Table, Part]] = []
        """What it has of parts that failed, which it removes when it becomes active."""
        self._open: dict[asyncio.Future[Any], None] = {}

    @property
    def in_touch(self) -> bool:
        """Reaches ZooKeeper now."""
        return self.process.running and self.world.zookeeper_up and self.world.linked(self.zone, 0)

    @property
    def writable(self) -> bool:
        return self.active and self.in_touch

    @property
    def idle(self) -> bool:
        """It answers without being active."""
        return self.in_touch and self.world.loop.time() < self.idle_until

    def kill(self) -> None:
        self.process.alive = False
        self.idle_until = 0.0
        for reply in list(self._open):
            self._reply(reply, None, interrupted(self.process.name, "killed"))
        self._open.clear()

    def start(self) -> None:
        if not self.process.alive:
            self.process = Process(f"clickhouse r{self.number}")

    def _reply(self, reply: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
        self._open.pop(reply, None)
        if not reply.done():
            _answer(reply, result, error)

    async def call(self, work: Coroutine[Any, Any, Any], timeout: float) -> Any:
        """A query of a local client: its answer, or a fault. The server continues when the client waits no more."""
        if not self.process.alive:
            work.close()
            await asyncio.sleep(0.01)
            raise unreachable(self.process.name, "refused")
        loop = self.world.loop
        reply = loop.create_future()
        self._open[reply] = None
        loop.spawn(self._serve(work, reply), self.process)
        timer = loop.call_later(timeout, self._reply, reply, None, interrupted(self.process.name, "timed out"))
        try:
            return await reply
        finally:
            timer.cancel()

    async def _serve(self, work: Coroutine[Any, Any, Any], reply: asyncio.Future[Any]) -> None:
        result, error = None, None
        try:
            result = await work
        except BlockhouseError as fault:
            error = fault
        if self.world.chance(self.world.setting.chances.insert_lost):
            self.world.count("answer of ClickHouse lost")
            error = interrupted(self.process.name, "reset")
        self._reply(reply, result, error)

    def error(self, code: int, text: str) -> Exception:
        return classify(code, text, self.process.name)


def _answer(reply: asyncio.Future[Any], result: Any, error: Exception | None) -> None:
    if error is not None:
        reply.set_exception(error)
    else:
        reply.set_result(result)
