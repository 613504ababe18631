"""One writer per (shard, table): keeps replicas of a shard from disturbing each other's quorum inserts.

It is NOT a fence. A holder that was frozen may wake up after its session is gone and somebody else holds the lock; an
insert that it has already sent goes on. Exactly-once rests on deduplication and the acknowledgement rule, never on this
lock: it saves refused inserts (286) and false early "ok"s, no more.
"""

from __future__ import annotations

import threading
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum

from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock

from blockhouse.errors import Retryable
from blockhouse_aggregator.coordination.session import Session, SessionState
from blockhouse_aggregator.coordination.znodes import translated


class LeaseState(StrEnum):
    HELD = "held"
    UNSURE = "unsure"
    """The connection is gone: the lock is ours until the server expires the session, and nobody tells us when."""
    LOST = "lost"
    """The session ended: somebody else may hold the lock."""


@dataclass(frozen=True, slots=True)
class Lease:
    """A lock taken in one generation of the session. Release it in every case, also when it is lost."""

    table: str
    _lock: Lock
    _session: Session
    _generation: int

    @property
    def state(self) -> LeaseState:
        generation, state = self._session.generation, self._session.state
        if generation != self._generation or state is SessionState.LOST:
            return LeaseState.LOST
        return LeaseState.HELD if state is SessionState.CONNECTED else LeaseState.UNSURE

    @property
    def valid(self) -> bool:
        """Whether an insert may START under it now. False while unsure; true again if the session survived."""
        return self.state is LeaseState.HELD


class TableLocks:
    """The locks of one shard, under `<root>/locks/<shard>/<table>`. Thread-safe; any number of tables at once.

    `holder` is written into the lock's node, so that a person with zkCli sees who holds and who waits.
    """

    def __init__(self, session: Session, shard: str, *, holder: str) -> None:
        self._session = session
        self._shard = shard
        self._holder = holder
        self._guard = threading.Lock()
        # Nodes we could not delete would block the table for as long as our session lives: (path, prefix of the node).
        self._leftovers: set[tuple[str, str]] = set()
        session.add_listener(self._on_state)

    def acquire(self, table: str, timeout: float) -> Lease | None:
        """The lock of `database.table`, first come first served, or None after `timeout` seconds.

        Two acquires of one table exclude each other in the same process too. Raises Retryable when ZooKeeper is away;
        when it goes away in the middle the call may overrun until it is back or the session is closed.
        """
        if self._session.state is not SessionState.CONNECTED:
            raise Retryable(f"lock of {table}: no ZooKeeper session ({self._session.state})", after=0.5)
        self._sweep()
        generation = self._session.generation
        lock = Lock(self._session.client, self._path(table), self._holder)
        acquired = False
        try:
            with translated(lock.path), suppress(LockTimeout):
                acquired = lock.acquire(timeout=timeout)
        finally:
            if not acquired:
                self._discard(lock)
        return Lease(table, lock, self._session, generation) if acquired else None

    def release(self, lease: Lease) -> None:
        """Give the lock back. Never raises: if ZooKeeper is away the node is deleted as soon as it is back.

        Also of a lost lease: when the session ended during `acquire`, kazoo waited on in the next one, and the node
        that it made there lives as long as that session.
        """
        self._discard(lease._lock)

    def contended(self, table: str) -> bool:
        """Whether somebody waits for the lock, beside whoever holds it. Raises Retryable when ZooKeeper is away."""
        return len(self._session.znodes.children(self._path(table))) > 1

    def holders(self, table: str) -> tuple[str, ...]:
        """Who holds the lock, and then who waits for it, in order."""
        path = self._path(table)
        names = sorted(self._session.znodes.children(path), key=lambda name: name[-10:])
        nodes = self._session.znodes.get_many([f"{path}/{name}" for name in names])
        return tuple(node.data.decode() for node in nodes if node is not None)

    def _path(self, table: str) -> str:
        return self._session.path("locks", self._shard, table)

    def _discard(self, lock: Lock) -> None:
        with self._guard:
            self._leftovers.add((lock.path, lock.prefix))
        self._sweep()

    def _sweep(self) -> None:
        """Delete the nodes of ours that nobody needs any more; what fails is tried again later."""
        with self._guard:
            leftovers = set(self._leftovers)
        for path, prefix in leftovers:
            try:
                for name in self._session.znodes.children(path):
                    if name.startswith(prefix):
                        self._session.znodes.delete(f"{path}/{name}")
            except Retryable:
                return
            with self._guard:
                self._leftovers.discard((path, prefix))

    def _on_state(self, state: SessionState) -> None:
        if state is SessionState.LOST:
            with self._guard:
                self._leftovers.clear()  # they were ephemeral
        elif state is SessionState.CONNECTED and self._leftovers:
            self._session.client.handler.spawn(self._sweep)
