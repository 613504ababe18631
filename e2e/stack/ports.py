"""Loopback ports that stay ours while their server is down, so that a restarted server finds its port free.

A port that is only remembered is lost sooner or later: the kernel hands it to any outgoing connection, even to the
client that keeps trying to reach the dead server (which then talks to itself). A bound socket that never listens
prevents that, and does not hinder a server that sets SO_REUSEADDR, as Java and ClickHouse do.
"""

from __future__ import annotations

import socket
from collections.abc import Mapping

from e2e.stack.spec import HOST


class Ports:
    """Ports by purpose, e.g. "kafka-a-1.client". Ports given at the start (of an earlier run) are kept."""

    def __init__(self, known: Mapping[str, int] | None = None) -> None:
        self._numbers = dict(known or {})
        self._held: dict[str, socket.socket] = {}

    def __getitem__(self, purpose: str) -> int:
        """The port for `purpose`, chosen at first use and then always the same."""
        if purpose not in self._numbers:
            self._numbers[purpose] = self._hold(purpose, 0)
        return self._numbers[purpose]

    def hold(self) -> None:
        """Reserves remembered ports too; one in use by another process is left to fail in the server's own words."""
        for purpose, number in self._numbers.items():
            if purpose not in self._held:
                try:
                    self._hold(purpose, number)
                except OSError:
                    continue

    def as_dict(self) -> dict[str, int]:
        return dict(self._numbers)

    def release(self) -> None:
        """Releases the reservations; the numbers stay."""
        while self._held:
            self._held.popitem()[1].close()

    def _hold(self, purpose: str, number: int) -> int:
        sock = socket.socket()
        try:
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            sock.bind((HOST, number))
        except OSError:
            sock.close()
            raise
        self._held[purpose] = sock
        return int(sock.getsockname()[1])
