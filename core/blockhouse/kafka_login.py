"""A long-lived client of Kafka logs in with the password that its file has now.

librdkafka is given the password with its settings, and uses it for every later connection until it is given another
one. Certificates it reads once.
"""

from __future__ import annotations

import time
from collections.abc import Callable
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
