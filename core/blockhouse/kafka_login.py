"""A long-lived client of Kafka logs in with the password that its file has now, and with the certificate.

librdkafka is given the password with its settings, and uses it for every later connection until it is given another
one. Certificates it reads once: for another one there has to be another client.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent

LOOK_SECONDS = 15.0


class Client(Protocol):
    """A consumer, producer or admin client of confluent-kafka."""

    def set_sasl_credentials(self, username: str, password: str) -> None:
        """What it logs in with from its next connection on."""


class Login:
    """Of one client, which is given by the thread that uses it."""

    def __init__(self, cluster: KafkaCluster, clock: Callable[[], float] = time.monotonic) -> None:
        self._sasl = cluster.sasl
        self._clock = clock
        self._due = clock() + LOOK_SECONDS
        self._password = ""
        """The one that the client was given here."""

    def refresh(self, client: Client) -> None:
        """To be called as often as the client is used: reads the file every LOOK_SECONDS. While there is none, or an
        empty one, the client keeps the password that it has."""
        if self._sasl is None or self._clock() < self._due:
            return
        self._due = self._clock() + LOOK_SECONDS
        try:
            password = self._sasl.password.read()
        except Permanent:
            return
        if password and password != self._password:
            client.set_sasl_credentials(self._sasl.username, password)
            self._password = password


class Certificates:
    """Files of a cluster's TLS, as they were when a client of it was created."""

    def __init__(self, cluster: KafkaCluster) -> None:
        tls = cluster.tls
        files = (tls.ca_file, tls.cert_file, tls.key_file) if tls is not None else ()
        self._files = tuple(file for file in files if file is not None)
        self._found = _digests(self._files)

    def replaced(self) -> bool:
        """Whether they have another content now; not while one of them is missing. To be asked of a client that cannot
        connect: one that can is left alone, for what it would be given may be wrong."""
        now = _digests(self._files)
        return bool(now) and now != self._found


def _digests(files: tuple[Path, ...]) -> tuple[bytes, ...]:
    """Empty while one of them cannot be read."""
    try:
        return tuple(hashlib.sha256(file.read_bytes()).digest() for file in files)
    except OSError:
        return ()
