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
import inspect
import itertools
import warnings
from collections import deque
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

START = 1_700_000_000.0
"""Unix time at which every simulation begins."""


class Process:
    """What can be frozen or killed as one. `context` is the one to schedule its callbacks in."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.alive = True
        self.frozen = False
        self.waiting: list[_Handle] = []
        self.context = contextvars.Context()
        self.context.run(PROCESS.set, self)

    @property
    def running(self) -> bool:
        return self.alive and not self.frozen


PROCESS: contextvars.ContextVar[Process | None] = contextvars.ContextVar("process", default=None)


class _Handle:
    """A callback and the context it runs in. As `asyncio.Handle`, without what a simulation has no use for."""

    __slots__ = ("_args", "_callback", "_context", "_when")

    def __init__(
        self, callback: Callable[..., Any], args: tuple[Any, ...], context: contextvars.Context | None, when: float
    ) -> None:
        self._callback: Callable[..., Any] | None = callback
        self._args = args
        self._context = contextvars.copy_context() if context is None else context
        self._when = when

    def cancel(self) -> None:
        self._callback, self._args = None, ()

    def cancelled(self) -> bool:
        return self._callback is None

    def when(self) -> float:
        return self._when


class _Future(asyncio.Future[Any]):
    def __hash__(self) -> int:
        return _number(self)


class _Task(asyncio.Task[Any]):
    def __hash__(self) -> int:
        return _number(self)


def _number(waited_for: Any) -> int:
    """Counted when it is first asked for: few futures ever are in a set."""
    try:
        return int(waited_for.number)
    except AttributeError:
        waited_for.number = next(waited_for.get_loop().numbers)
        return int(waited_for.number)


_Base: Any = asyncio.AbstractEventLoop
"""Untyped: asyncio declares forty methods, and nothing here calls those that a simulation has no use for."""


class SimLoop(_Base):  # type: ignore[misc]
    """Runs callbacks in the order of their virtual time, then of their scheduling."""

    def __init__(self) -> None:
        self._now = 0.0
        self._order = itertools.count()
        self.numbers = itertools.count(1)
        self._timers: list[tuple[float, int, _Handle]] = []
        self._ready: deque[_Handle] = deque()
        self.steps = 0
        self.trace = 0
        """A number in which every step has left its mark."""
        self.failed: Callable[[str], None] = lambda _: None
        self.tasks: list[asyncio.Task[Any]] = []
        """Kept to the end: a killed process's coroutines must not be collected, which would run their `finally`."""

    # --- what asyncio asks of a loop ------------------------------------------------------------------------

    def time(self) -> float:
        return self._now

    def call_soon(self, callback: Callable[..., Any], *args: Any, context: Any = None) -> _Handle:
        handle = _Handle(callback, args, context, self._now)
        self._ready.append(handle)
        return handle

    call_soon_threadsafe = call_soon

    def call_later(self, delay: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> _Handle:
        return self.call_at(self._now + delay, callback, *args, context=context)

    def call_at(self, when: float, callback: Callable[..., Any], *args: Any, context: Any = None) -> _Handle:
        when = max(when, self._now)
        handle = _Handle(callback, args, context, when)
        heapq.heappush(self._timers, (when, next(self._order), handle))
        return handle

    def create_future(self) -> asyncio.Future[Any]:
        return _Future(loop=self)

    def create_task(self, coro: Any, *, name: str | None = None, context: Any = None) -> asyncio.Task[Any]:
        task = _Task(coro, loop=self, name=name, context=context)
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
        """Of tasks and futures whose exception was never retrieved: killed processes leave many."""

    # --- time -----------------------------------------------------------------------------------------------

    def run(self, until: float, over: Callable[[], bool]) -> None:
        """Run up to the virtual time `until`, or until `over()`, asked after every step of time."""
        ready, timers = self._ready, self._timers
        with self._current():
            while not over():
                while ready:
                    self._run_one(ready.popleft())
                if not timers or timers[0][0] > until:
                    self._now = until
                    return
                now = self._now = timers[0][0]
                while timers and timers[0][0] <= now:
                    ready.append(heapq.heappop(timers)[2])

    @contextlib.contextmanager
    def _current(self) -> Iterator[None]:
        """Asyncio's own register of tasks (weak references, written in Python) is dear, and ours has them all."""
        register: Any = asyncio.tasks._all_tasks  # type: ignore[attr-defined]
        register.add = lambda _: None
        asyncio.events._set_running_loop(self)
        try:
            yield
        finally:
            asyncio.events._set_running_loop(None)
            del register.add

    def _run_one(self, handle: _Handle) -> None:
        callback, context = handle._callback, handle._context
        if callback is None:
            return
        process = context.get(PROCESS)
        if process is not None and (process.frozen or not process.alive):
            if process.alive:
                process.waiting.append(handle)
            return
        self.steps += 1
        self.trace = hash((self.trace, self._now, process is None))
        try:
            context.run(callback, *handle._args)
        except Exception as error:  # noqa: BLE001 - judged, as asyncio's handler of exceptions is
            self.failed(f"exception in callback {callback}: {error!r}")

    def thaw(self, process: Process) -> None:
        process.frozen = False
        self._ready.extend(process.waiting)
        process.waiting.clear()

    def bury(self) -> None:
        """The end of a run: every coroutine that still waits is closed, and what that does has no effect any more."""
        self.failed = lambda _: None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", RuntimeWarning)  # what a `finally` calls in vain is never awaited
            for task in self.tasks:
                setattr(task, "_log_destroy_pending", False)  # noqa: B010
                waiting: Any = task.get_coro()
                while inspect.getcoroutinestate(waiting) != inspect.CORO_CLOSED:
                    with contextlib.suppress(BaseException):  # its `finally` may wait again
                        waiting.close()
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
