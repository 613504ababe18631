"""An event loop in virtual time whose processes can be frozen and killed between any two callbacks.

Every callback runs in the context it was scheduled from, and the context names the process. The callbacks of a frozen
process wait, in order, until it thaws; those of a dead one never run: no `finally`, no clean-up, as after SIGKILL.
Task and future hashes are counted, so that sets of them are iterated in the same order in every run.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import heapq
import itertools
from collections import deque
from collections.abc import Callable, Coroutine, Generator
from typing import Any

START = 1_700_000_000.0
"""Unix time at which every simulation begins."""


class Process:
    """What can be frozen or killed as one. `context` is the one to schedule its callbacks in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.waiting: list[asyncio.Handle] = []
        self.context = contextvars.Context()
        self.context.run(PROCESS.set, self)

    @property
    def running(self) -> bool:
        return self.alive and not self.frozen


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class _Future(asyncio.Future[Any]):
    def __init__(self, loop: SimLoop) -> None:
        super().__init__(loop=loop)
        self.number = next(loop.numbers)

    def __hash__(self) -> int:
        return self.number


class _Task(asyncio.Task[Any]):
    def __init__(self, work: Coroutine[Any, Any, Any] | Generator[Any, None, Any], loop: SimLoop, **more: Any) -> None:
        self.number = next(loop.numbers)
        super().__init__(work, loop=loop, **more)

    def __hash__(self) -> int:
        return self.number


_Base: Any = asyncio.AbstractEventLoop
"""Untyped: asyncio declares forty methods, and nobody here calls those that a simulation has no use for."""


class SimLoop(_Base):  # type: ignore[misc]
    """Runs callbacks in the order of their virtual time, then of their scheduling."""

    def __init__(self) -> None:
        self._now = 0.0
        self._order = itertools.count()
        self.numbers = itertools.count(1)
        self._timers: list[tuple[float, int, asyncio.TimerHandle]] = []
        self._ready: deque[asyncio.Handle] = deque()
        self.steps = 0
        self.trace = 0
        """A number in which every step has left its mark."""
        self.failed: Callable[[str], None] = lambda _: None
        self.tasks: list[asyncio.Task[Any]] = []
        """Kept to the end: a killed process's coroutines must not be collected, which would run their `finally`."""

    # --- what asyncio asks of a loop ------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> asyncio.Handle:
        handle = asyncio.Handle(callback, args, self, context)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(
        self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self._now + max(0.0, delay), callback, *args, context=context)

    def call_at(
        self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None
    ) -> asyncio.TimerHandle:
        handle = asyncio.TimerHandle(when, callback, args, self, context)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def _timer_handle_cancelled(self, handle: asyncio.TimerHandle) -> None: ...

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        task = _Task(coro, self, name=name, context=context)
        self.tasks.append(task)
        return task

    def run_in_executor(self, executor: Any, func: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        """A call in a thread takes a moment. One that returns a future takes until that is done."""
        future = self.create_future()

        def run() -> None:
            try:
                result = func(*args)
            except Exception as error:  # noqa: BLE001 - handed on, as an executor does
                _settle(future, error=error)
                return
            if isinstance(result, asyncio.Future):
                result.add_done_callback(lambda done: _copy(done, future))
            else:
                _settle(future, result=result)

        self.call_later(0.0002, run)
        return future

    def add_signal_handler(self, sig: int, callback: Callable[..., Any], *args: Any) -> None: ...

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return True

    def is_closed(self) -> bool:
        return False

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if "handle" in context:
            self.failed(f"{context.get('message')}: {context.get('exception')!r}")

    # --- time -----------------------------------------------------------------------------------------------

    def run(self, until: float, over: Callable[[], bool]) -> None:
        """Run up to the virtual time `until`, or until `over()`, asked after every step of time."""
        asyncio.events._set_running_loop(self)
        try:
            while not over():
                while self._ready:
                    self._run_one(self._ready.popleft())
                if not self._timers or self._timers[0][0] > until:
                    self._now = until
                    return
                self._now = self._timers[0][0]
                while self._timers and self._timers[0][0] <= self._now:
                    self._ready.append(heapq.heappop(self._timers)[2])
        finally:
            asyncio.events._set_running_loop(None)

    def _run_one(self, handle: asyncio.Handle) -> None:
        if handle.cancelled():
            return
        context: contextvars.Context = handle._context  # type: ignore[attr-defined]
        process = context.get(PROCESS)
        if process is not None and not process.running:
            if process.alive:
                process.waiting.append(handle)
            return
        self.steps += 1
        self.trace = hash((self.trace, self._now, process is None))
        handle._run()

    def thaw(self, process: Process) -> None:
        process.frozen = False
        self._ready.extend(process.waiting)
        process.waiting.clear()

    def bury(self) -> None:
        """The end of a run: every coroutine that still waits is closed, and what that does has no effect any more."""
        self.failed = lambda _: None
        for task in self.tasks:
            setattr(task, "_log_destroy_pending", False)  # noqa: B010
            if not task.done():
                with contextlib.suppress(BaseException):
                    task.get_coro().close()
        self.tasks.clear()
        self._timers.clear()
        self._ready.clear()

    def spawn(self, work: Coroutine[Any, Any, Any], process: Process | None = None) -> asyncio.Task[Any]:
        """A task in `process`, or in none: then it is part of the world and cannot die."""
        return self.create_task(work, context=process.context if process is not None else contextvars.Context())


def _settle(future: asyncio.Future[Any], *, result: Any = None, error: BaseException | None = None) -> None:
    if future.done():
        return
    if error is not None:
        future.set_exception(error)
    else:
        future.set_result(result)


def _copy(done: asyncio.Future[Any], future: asyncio.Future[Any]) -> None:
    error = done.exception()
    _settle(future, error=error) if error is not None else _settle(future, result=done.result())
