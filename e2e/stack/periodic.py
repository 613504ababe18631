"""Something done again and again in a thread of its own, as long as a context lasts."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self


class Periodic:
    """Calls `action` every `every` seconds, first after that time. Leaving waits up to `patience` seconds for it, and
    raises what it raised: after that it was not called any more."""

    def __init__(self, action: Callable[[], object], every: float, *, name: str, patience: float = 10.0) -> None:
        self._action = action
        self._every = every
        self._patience = patience
        self._stop = threading.Event()
        self._failure: Exception | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def _run(self) -> None:
        while not self._stop.wait(self._every):
            try:
                self._action()
            except Exception as error:  # noqa: BLE001  raised to whom relies on it
                self._failure = error
                return

    def join(self, seconds: float) -> None:
        """Wait until it has failed, `seconds` at most."""
        self._thread.join(seconds)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self.join(self._patience)
        self.over()
        if self._failure is not None and error is None:
            raise self._failure

    def over(self) -> None:
        """Called when the context has been left; does nothing here."""
