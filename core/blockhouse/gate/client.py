"""The task's end of the gate: a blocking connection that is authenticated both ways."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Generic, TypeVar

from pydantic import TypeAdapter, ValidationError

from blockhouse.errors import Retryable
from blockhouse.gate.messages import Challenge, Greeting, Hello, Message
from blockhouse.gate.wire import new_nonce, prove, proves, to_line

Sent = TypeVar("Sent", bound=Message)
Received = TypeVar("Received")
Welcomed = TypeVar("Welcomed", bound=Greeting)


@dataclass(frozen=True, slots=True)
class GateAddress:
    """Where the driver is and what a task needs to be believed. `repr` hides the key."""

    host: str
    port: int
    key: bytes

    def __repr__(self) -> str:
        return f"GateAddress({self.host}:{self.port})"


class GateConnection(Generic[Sent, Received, Welcomed]):
    """One session with the driver."""

    welcome: Welcomed
    """What the driver accepted the task with."""

    def __init__(
        self,
        address: GateAddress,
        work: str,
        epoch: int,
        lease: int,
        *,
        from_driver: TypeAdapter[Received],
        welcome: type[Welcomed],
    ) -> None:
        """Connect, and prove to each other who we are. `from_driver` are the messages after the welcome.

        Raises Retryable when the driver refuses the lease, or is not the driver; OSError when it is not reached or
        silent for ten seconds; ValidationError when what listens sends no challenge.
        """
        self._from_driver = from_driver
        self._socket = socket.create_connection((address.host, address.port), timeout=10)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._lines = self._socket.makefile("rb")
        self._sending = threading.Lock()
        self.welcome = self._introduce(address, work, epoch, lease, welcome)
        self._socket.settimeout(None)

    def _introduce(self, address: GateAddress, work: str, epoch: int, lease: int, expected: type[Welcomed]) -> Welcomed:
        challenge = Challenge.model_validate_json(self._lines.readline())
        nonce = new_nonce()
        proof = prove(address.key, challenge.nonce, work, epoch, lease)
        self._write(Hello(work=work, epoch=epoch, lease=lease, pid=os.getpid(), proof=proof, nonce=nonce))
        line = self._lines.readline()
        if not line:
            raise Retryable(f"the driver refused lease {lease} of {work} in epoch {epoch}: it is out of date")
        stranger = f"the process that listens at {address.host}:{address.port} is not the driver"
        try:
            welcome = expected.model_validate_json(line)
        except ValidationError as error:
            raise Retryable(stranger) from error
        if not proves(address.key, welcome.proof, nonce, "driver"):
            raise Retryable(stranger)
        return welcome

    def messages(self) -> Iterator[Received]:
        """What the driver sends, until it is gone; blocking. Raises ValidationError for a line that is no message."""
        try:
            for line in self._lines:
                yield self._from_driver.validate_json(line)
        except OSError:
            return  # the driver is gone

    def send(self, message: Sent) -> None:
        """Send from any thread. Raises OSError when the driver is gone."""
        self._write(message)

    def _write(self, message: Message) -> None:
        with self._sending:
            self._socket.sendall(to_line(message))

    def close(self) -> None:
        """End the session once what was sent has arrived; more than once does no harm."""
        with contextlib.suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)  # or a thread that waits in `messages` would keep it open
        self._socket.close()
