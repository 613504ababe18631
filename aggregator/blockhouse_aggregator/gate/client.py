"""The task's end of the gate: a reader thread sorts orders from grants."""

from __future__ import annotations

import queue
import threading
from typing import Protocol

from blockhouse.gate.client import GateAddress, GateConnection
from blockhouse_aggregator.gate.messages import (
    FROM_DRIVER,
    Drop,
    Finish,
    FromDriver,
    FromTask,
    Go,
    Grant,
    Replay,
    Scan,
    Stop,
    Welcome,
)

Order = Scan | Replay | Stop


class Inserts(Protocol):
    """Who carries out grants; called on the reader thread, and must not block it."""

    def grant(self, grant: Grant, /) -> None: ...
    def go(self, go: Go, /) -> None: ...
    def drop(self, drop: Drop, /) -> None: ...
    def abandon(self) -> None: ...


class GateClient:
    """One session. `next_order` blocks; what is about inserts is handed on at once."""

    def __init__(self, address: GateAddress, stream: str, epoch: int, lease: int) -> None:
        self._connection: GateConnection[FromTask, FromDriver, Welcome] = GateConnection(
            address, stream, epoch, lease, from_driver=FROM_DRIVER, welcome=Welcome
        )
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self.finish = threading.Event()
        self.welcome = self._connection.welcome

    def start(self, inserts: Inserts) -> None:
        """Read the driver's messages in a thread: grants, drops and answers go to `inserts`."""
        threading.Thread(target=self._read, args=(inserts,), name="gate-reader", daemon=True).start()

    def _read(self, inserts: Inserts) -> None:
        try:
            for message in self._connection.messages():
                match message:
                    case Grant() as grant:
                        inserts.grant(grant)
                    case Drop() as drop:
                        inserts.drop(drop)
                    case Go() as go:
                        inserts.go(go)
                    case Finish():
                        self.finish.set()
                    case Scan() | Replay() as order:
                        self.finish.clear()
                        self._orders.put(order)
                    case Stop() as order:
                        self.finish.set()
                        self._orders.put(order)
                    case Welcome():
                        raise ValueError("a second welcome")
        except OSError:
            pass  # the driver was gone when a grant was answered: the None below ends the lease
        finally:
            self.finish.set()
            inserts.abandon()
            self._orders.put(None)

    def next_order(self) -> Order | None:
        """The next order; None when the driver is gone: stop at once, every grant is void."""
        return self._orders.get()

    def send(self, message: FromTask) -> None:
        """Send from any thread. Raises OSError when the driver is gone."""
        self._connection.send(message)

    def close(self) -> None:
        """Close the connection; the driver takes that for the end of the task."""
        self._connection.close()
