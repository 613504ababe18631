"""Ports must stay ours while a server is down: otherwise a restart fails now and then, and no one knows why."""

from __future__ import annotations

import socket
from collections.abc import Iterator

import pytest

from e2e.stack.ports import Ports


@pytest.fixture
def ports() -> Iterator[Ports]:
    ports = Ports()
    yield ports
    ports.release()


def listen(port: int) -> socket.socket:
    """As a server does that sets SO_REUSEADDR."""
    server = socket.socket()
    server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    server.bind(("127.0.0.1", port))
    server.listen()
    return server


def test_each_purpose_has_one_port_of_its_own(ports: Ports) -> None:
    chosen = {name: ports[name] for name in ("a", "b", "c")}

    assert len(set(chosen.values())) == 3
    assert {name: ports[name] for name in chosen} == chosen == ports.as_dict()


def test_nothing_answers_on_a_held_port_and_no_other_process_gets_it(ports: Ports) -> None:
    port = ports["a"]

    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port), timeout=1)
    with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
        stranger.bind(("127.0.0.1", port))


def test_a_server_can_listen_on_its_held_port_again_and_again(ports: Ports) -> None:
    port = ports["a"]

    for _ in range(3):
        with listen(port) as server, socket.create_connection(("127.0.0.1", port), timeout=1):
            server.accept()[0].close()


def test_a_client_that_keeps_trying_a_dead_server_never_meets_itself(ports: Ports) -> None:
    """On a port that is merely remembered the kernel may choose it as the client's own."""
    port = ports["a"]

    with socket.socket() as client, pytest.raises(OSError, match="in use"):
        client.bind(("127.0.0.1", port))  # what a self-connection would have to do first


def test_remembered_ports_are_held_again_in_the_next_run(ports: Ports) -> None:
    ports["a"]
    known = ports.as_dict()
    ports.release()

    again = Ports(known)
    again.hold()
    try:
        assert again["a"] == known["a"]
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", known["a"]))
    finally:
        again.release()


def test_a_remembered_port_whose_server_runs_already_does_not_hinder(ports: Ports) -> None:
    port = ports["a"]
    ports.release()
    with listen(port):
        again = Ports({"a": port})
        again.hold()
        assert again["a"] == port
        again.release()
