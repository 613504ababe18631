"""A daemon thread for calls of a client that it does not bound in time, one behind the other."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


class Lane:
    """The caller bounds its wait; a call that never comes back is abandoned with its thread.

    A ThreadPoolExecutor would keep the process from exiting.
    """

    def __init__(self, name: str) -> None:
        self._work: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        threading.Thread(target=self._run, name=name, daemon=True).start()

    def _run(self) -> None:
        while (work := self._work.get()) is not None:
            work()

    def submit(self, function: Callable[[], T]) -> Future[T]:
        """Call it behind what was submitted before; its result."""
        future: Future[T] = Future()

        def work() -> None:
            try:
                future.set_result(function())
            except Exception as error:  # noqa: BLE001 - the caller that waits for the future judges it
                future.set_exception(error)

        self._work.put(work)
        return future

    def end(self) -> None:
        """The thread ends behind what was submitted."""
        self._work.put(None)
