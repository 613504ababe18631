"""The task that works for a stream now and holds the bytes of its blocks: where grants go, with the fault points
before and after an insert. It must never insert twice for one grant, nor let one begin without a proof."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine
from functools import partial
from typing import Any

from blockhouse.errors import Retryable
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.faults.model import Action, Point
from blockhouse_aggregator.faults.strike import strike
from blockhouse_aggregator.gate.messages import Grant, Result
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.ports import Lock

Prove = Callable[[], Awaitable[None]]
"""Asked right before the first byte; see `proof`. Raises Retryable when it must not be sent."""
SendGrant = Callable[[Grant, Prove], Coroutine[Any, Any, Result]]


class CurrentTask:
    """`storing.Task` of one stream in one epoch; without a task `insert` raises Retryable."""

    def __init__(self, stream: str, faults: Faults, prove: Callable[[Lock], Awaitable[None]]) -> None:
        """`prove` answers whether an insert under the lock may begin now."""
        self._stream = stream
        self._faults = faults
        self._prove = prove
        self._send: SendGrant | None = None
        self.heard = 0.0
        """When, on the loop's clock, the task was last spoken with."""
        self.failure = ""
        """Why the last lease failed; empty once another task has begun."""
        self.trouble: tuple[str, str] | None = None
        """Reason and text of what keeps tasks from carrying out their order; None once one has carried out any."""

    @property
    def present(self) -> bool:
        return self._send is not None

    def attach(self, send: SendGrant) -> None:
        """Caller: the conversation with the task, when it begins."""
        self._send = send
        self.failure = ""
        self.hear()

    def hear(self) -> None:
        """A message was sent or received. Caller: the conversation with the task."""
        self.heard = loop_time()

    def failed(self, cause: str) -> None:
        """The lease ended with an error. Caller: who runs leases."""
        self.failure = cause

    def troubled(self, reason: str, text: str) -> None:
        """The task answered that it cannot carry out its order. Caller: the conversation with the task."""
        self.trouble = reason, text

    def progressed(self) -> None:
        """An order was carried out. Caller: the conversation with the task."""
        self.trouble = None

    def detach(self) -> None:
        """Caller: the conversation with the task, when it ends."""
        self._send = None

    async def prove(self, lock: Lock) -> None:
        """Raises Retryable unless an insert under the lock might begin now."""
        await self._prove(lock)

    async def insert(self, grant: Grant, lock: Lock) -> Result:
        """Hand the grant to the task and wait for what became of it. Raises Retryable when that cannot be known."""
        if self._send is None:
            raise Retryable(f"no Spark task works for {self._stream} now", after=0.2)
        points = (Point.BEFORE_INSERT, Point.AFTER_INSERT)
        taken = [self._faults.take(point, self._stream, grant.block.table) for point in points]
        ours = {i.point: i for i in taken if i is not None and i.action is Action.KILL_AGGREGATOR}
        theirs = tuple(i for i in taken if i is not None and i.point not in ours)
        strike(ours.get(Point.BEFORE_INSERT))
        given = grant.model_copy(update={"faults": theirs}) if theirs else grant
        result = await self._send(given, partial(self._prove, lock))
        strike(ours.get(Point.AFTER_INSERT))
        return result
