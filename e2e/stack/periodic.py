"""Something done again and again in a thread of its own, as long as a context lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Periodic:
    """Calls `action` every `every` seconds, first after that time. Leaving waits up to `patience` seconds for it."""

    def __init__(self, action: Callable[[], object], every: float, *, name: str, patience: float = 10.0) -> None:
        self._action = action
        self._every = every
        self._patience = patience
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            self._action()

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._thread.join(self._patience)
        self.over()

    def over(self) -> None:
        """Called when the context has been left; does nothing here."""
