"""A TCP proxy before one Kafka broker that knows the kind of every request, to withhold requests or replies."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections import Counter

FETCH, OFFSET_COMMIT, JOIN_GROUP = 1, 8, 11


class Proxy:
    """Listens on `port`. The broker behind must advertise that port, else clients go past it.

    `requests[client id, api key]` counts what passed. `hold_requests(key)` keeps such requests (of one client id, if
    named) from the broker, `hold_replies(key)` their replies from the client, until `release`; everything behind them
    on that connection waits too, as on a real wire. A withheld request is delivered on release even when its client
    hung up long ago.
    """

    def __init__(self, broker_port: int) -> None:
        self._broker_port = broker_port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.requests: Counter[tuple[str, int]] = Counter()
        self.held = threading.Event()
        self.delivered = threading.Event()
        self._open = threading.Event()
        self._open.set()
        self._hold: tuple[str, int] | None = None
        self._held_client: str | None = None
        threading.Thread(target=self._accept, daemon=True).start()

    def hold_requests(self, key: int, client: str | None = None) -> None:
        self._held_client = client
        self._start_holding("request", key)

    def hold_replies(self, key: int) -> None:
        self._start_holding("reply", key)

    def _start_holding(self, what: str, key: int) -> None:
        for event in (self.held, self.delivered, self._open):
            event.clear()
        self._hold = (what, key)

    def stop_holding(self) -> None:
        """Later requests pass; what is held stays held."""
        self._hold = None

    def release(self) -> None:
        self._hold = None
        self._open.set()

    def close(self) -> None:
        self.release()
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(("127.0.0.1", self._broker_port))
            except OSError:
                client.close()  # the broker is down: as if nothing listened
                continue
            kinds: dict[int, int] = {}
            threading.Thread(target=self._requests, args=(client, broker, kinds), daemon=True).start()
            threading.Thread(target=self._replies, args=(broker, client, kinds), daemon=True).start()

    def _requests(self, client: socket.socket, broker: socket.socket, kinds: dict[int, int]) -> None:
        try:
            while frame := _read(client):
                key, _, correlation, length = struct.unpack(">hhih", frame[:10])
                kinds[correlation] = key
                name = frame[10 : 10 + length].decode()
                self.requests[name, key] += 1
                held = self._held_client in (None, name) and self._wait_if_held("request", key)
                broker.sendall(struct.pack(">i", len(frame)) + frame)
                if held:
                    self.delivered.set()
        except OSError:
            pass
        finally:
            _shut(broker, socket.SHUT_WR)

    def _replies(self, broker: socket.socket, client: socket.socket, kinds: dict[int, int]) -> None:
        try:
            while frame := _read(broker):
                self._wait_if_held("reply", kinds.pop(struct.unpack(">i", frame[:4])[0]))
                client.sendall(struct.pack(">i", len(frame)) + frame)
        except OSError:
            pass
        finally:
            _shut(client, socket.SHUT_RDWR)

    def _wait_if_held(self, what: str, key: int) -> bool:
        if self._hold != (what, key):
            return False
        self.held.set()
        self._open.wait()
        return True


def _read(source: socket.socket) -> bytes | None:
    """One frame without its length, None at the end."""
    data = b""
    expected = 4
    while len(data) < expected:
        chunk = source.recv(expected - len(data))
        if not chunk:
            return None
        data += chunk
        if expected == 4 and len(data) == 4:
            expected += struct.unpack(">i", data)[0]
    return data[4:]


def _shut(target: socket.socket, how: int) -> None:
    with contextlib.suppress(OSError):  # it is closed already, which is all we want
        target.shutdown(how)
