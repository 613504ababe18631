"""Starts again whatever died, or hangs at its start, as a kubelet does, unless a fault holds it down."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from blockhouse.errors import BlockhouseError
from e2e.stack.periodic import Periodic
from e2e.stack.server import Server

INTERVAL = 0.3


class Supervisor(Periodic):
    """A context manager; a thread of its own. `log` is called with what it did."""

    def __init__(self, servers: Mapping[str, Server], log: Callable[[str], None]) -> None:
        super().__init__(self._start_the_dead, INTERVAL, name="supervisor", patience=30)
        self._servers = servers
        self._log = log
        self._held: Counter[str] = Counter()
        self._guard = threading.RLock()

    @contextmanager
    def holding_down(self, names: Sequence[str]) -> Iterator[None]:
        """These are not started meanwhile. Faults may overlap: the last one that lets go counts."""
        with self._guard:
            self._held.update(names)
        try:
            yield
        finally:
            with self._guard:
                self._held.subtract(names)

    def _start_the_dead(self) -> None:
        for name, server in self._servers.items():
            with self._guard:
                if self._held[name] > 0 or self._stop.is_set():
                    continue
                try:
                    if server.start_again_if_hung():
                        self._log(f"{name} hung at its start: killed and started again")
                    if server.alive:
                        continue
                    server.start(wait=False)
                except (BlockhouseError, OSError) as error:
                    self._log(f"{name} could not be started: {error}")
                else:
                    self._log(f"{name} started again")
