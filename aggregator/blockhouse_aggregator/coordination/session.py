"""The pipeline's one ZooKeeper session: everything ephemeral a driver owns (its locks) lives and dies with it.

The only module that creates a KazooClient. It must never hide a lost session: a holder of something by it compares
generations. Listeners run in kazoo's connection thread and must never wait for ZooKeeper.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from enum import StrEnum
from urllib.parse import quote

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.protocol.states import KazooState
from kazoo.security import CREATOR_ALL_ACL

from blockhouse.config.endpoints import ZooKeeper
from blockhouse_aggregator.coordination.znodes import Znodes, translated


class SessionState(StrEnum):
    """What is known of the session with the ensemble; locks are held only while it is CONNECTED."""

    CONNECTED = "connected"
    SUSPENDED = "suspended"
    """No connection: the session may or may not still live on the server."""
    LOST = "lost"
    """The session is over, its ephemeral nodes are gone. A new one is opened as soon as the ensemble answers."""


_STATES = {
    KazooState.CONNECTED: SessionState.CONNECTED,
    KazooState.SUSPENDED: SessionState.SUSPENDED,
    KazooState.LOST: SessionState.LOST,
}

Listener = Callable[[SessionState], None]


class Session:
    """A connection to the ensemble that reconnects by itself. Thread-safe. Use once: `connect`, then `close`.

    `generation` grows whenever a session is lost: what was held under an older one is gone.
    """

    def __init__(self, config: ZooKeeper, *, timeout: float = 10.0) -> None:
        self._config = config
        self._timeout = timeout
        self._guard = threading.Lock()
        self._state = SessionState.LOST
        self._generation = 0
        self._listeners: list[Listener] = []
        self.root = config.root
        # Who logs in creates nodes for itself alone.
        acl = CREATOR_ALL_ACL if config.username is not None else None
        self.client = KazooClient(default_acl=acl, **config.client_arguments())
        self.client.add_listener(self._on_state)
        self.znodes = Znodes(self.client, timeout=timeout)

    def connect(self) -> None:
        """Open the session, make the root. Raises Retryable when no server answers in time, Permanent on bad login."""
        with translated(self._config.servers):
            self.client.start(timeout=self._timeout)
        self.znodes.ensure(self.root)

    def close(self) -> None:
        """End the session now: its locks are free at once."""
        with suppress(KazooException):
            self.client.stop()
            self.client.close()

    @property
    def state(self) -> SessionState:
        with self._guard:
            return self._state

    @property
    def generation(self) -> int:
        with self._guard:
            return self._generation

    def add_listener(self, listener: Listener) -> None:
        """Call this at every change of state, at once, in kazoo's thread."""
        with self._guard:
            self._listeners.append(listener)

    def path(self, *names: str) -> str:
        """A path below the root; each name becomes one node, whatever characters it has."""
        return "/".join([self.root, *(quote(name, safe="") for name in names)])

    def __enter__(self) -> Session:
        self.connect()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _on_state(self, state: str) -> None:
        with self._guard:
            self._state = _STATES[state]
            if self._state is SessionState.LOST:
                self._generation += 1
            listeners, now = tuple(self._listeners), self._state
        for listener in listeners:
            listener(now)
