"""The task's end of the gate: a blocking connection with a reader thread that sorts orders from grants."""

from __future__ import annotations

import os
import queue
import socket
import threading
from collections.abc import Callable
from dataclasses import dataclass

from blockhouse.errors import Retryable
from blockhouse_aggregator.gate.messages import (
    FROM_DRIVER,
    Challenge,
    Drop,
    Finish,
    FromTask,
    Grant,
    Hello,
    Replay,
    Scan,
    Stop,
    Welcome,
)
from blockhouse_aggregator.gate.wire import new_nonce, prove, proves, to_line

Order = Scan | Replay | Stop


@dataclass(frozen=True, slots=True)
class GateAddress:
    """Where the driver is and what a task needs to be believed. `repr` hides the key."""

    host: str
    port: int
    key: bytes

    def __repr__(self) -> str:
        return f"GateAddress({self.host}:{self.port})"


class GateClient:
    """One session. `next_order` blocks; grants and drops are handed to the callbacks on the reader thread at once."""

    def __init__(self, address: GateAddress, stream: str, epoch: int, lease: int) -> None:
        self._socket = socket.create_connection((address.host, address.port), timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = self._socket.makefile("rb")
        self._sending = threading.Lock()
        self._orders: queue.SimpleQueue[Order | None] = queue.SimpleQueue()
        self.finish = threading.Event()
        self.welcome = self._introduce(address, stream, epoch, lease)
        self._socket.settimeout(None)

    def _introduce(self, address: GateAddress, stream: str, epoch: int, lease: int) -> Welcome:
        challenge = Challenge.model_validate_json(self._lines.readline())
        nonce = new_nonce()
        proof = prove(address.key, challenge.nonce, stream, epoch, lease)
        self.send(Hello(stream=stream, epoch=epoch, lease=lease, pid=os.getpid(), proof=proof, nonce=nonce))
        line = self._lines.readline()
        if not line:
            raise Retryable(f"the driver refused lease {lease} of {stream} in epoch {epoch}: it is out of date")
        welcome = FROM_DRIVER.validate_json(line)
        if not isinstance(welcome, Welcome) or not proves(address.key, welcome.proof, nonce, "driver"):
            raise Retryable(f"whoever listens at {address.host}:{address.port} is not the driver")
        return welcome

    def start(self, on_grant: Callable[[Grant], None], on_drop: Callable[[Drop], None]) -> None:
        threading.Thread(target=self._read, args=(on_grant, on_drop), name="gate-reader", daemon=True).start()

    def _read(self, on_grant: Callable[[Grant], None], on_drop: Callable[[Drop], None]) -> None:
        try:
            for line in self._lines:
                match FROM_DRIVER.validate_json(line):
                    case Grant() as grant:
                        on_grant(grant)
                    case Drop() as drop:
                        on_drop(drop)
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
            pass  # the driver is gone: the None below ends the lease
        finally:
            self.finish.set()
            self._orders.put(None)

    def next_order(self) -> Order | None:
        """The next order; None when the driver is gone: stop at once, every grant is void."""
        return self._orders.get()

    def send(self, message: FromTask) -> None:
        """Send from any thread. Raises OSError when the driver is gone."""
        with self._sending:
            self._socket.sendall(to_line(message))

    def close(self) -> None:
        self._socket.close()
