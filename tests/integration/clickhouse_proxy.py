"""A proxy before one server, plain or with TLS towards the client, that can cut a connection in the middle."""

from __future__ import annotations

import socket
import ssl
import threading
from contextlib import suppress


class Proxy:
    """Passes bytes between clients and the server on `target` (loopback), until it is cut."""

    def __init__(self, target: int, *, tls: ssl.SSLContext | None = None) -> None:
        self._target = target
        self._tls = tls
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Proxy:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()

    def cut(self) -> None:
        """Close every connection, and accept no more."""
        for each in (self._listener, *self._sockets):
            with suppress(OSError):  # closed by its peer already
                each.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return  # cut
            try:
                front = self._tls.wrap_socket(client, server_side=True) if self._tls else client
            except OSError:
                continue  # the client did not trust us
            back = socket.create_connection(("127.0.0.1", self._target))
            self._sockets += [front, back]
            threading.Thread(target=_pump, args=(front, back), daemon=True).start()
            threading.Thread(target=_pump, args=(back, front), daemon=True).start()


def _pump(source: socket.socket, target: socket.socket) -> None:
    try:
        while data := source.recv(65536):
            target.sendall(data)
        target.shutdown(socket.SHUT_WR)
    except OSError:
        return  # cut
