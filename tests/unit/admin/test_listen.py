"""A port that is taken is an error in one line, before anything else is started."""

from __future__ import annotations

import socket

import pytest
from prometheus_client import CollectorRegistry

from blockhouse.errors import Permanent
from blockhouse.serving import Answer, HttpServer


class Server(HttpServer):
    def health(self) -> Answer:
        return Answer(True, "ok")

    def readiness(self) -> Answer:
        return Answer(True, "ready")


async def test_a_port_in_use_is_named() -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        port = other.getsockname()[1]
        with pytest.raises(Permanent, match=f"^cannot listen on 127.0.0.1:{port}: address already in use") as caught:
            await Server("127.0.0.1", port, CollectorRegistry()).start()
    assert caught.value.reason == "CannotListen"
