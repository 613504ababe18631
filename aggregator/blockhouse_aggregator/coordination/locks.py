"""One writer per (shard, table): keeps replicas of a shard from disturbing each other's quorum inserts.

It is NOT a fence. A holder that was frozen may wake up after its session is gone and another process holds the lock; an
insert that it has already sent continues. Exactly-once rests on deduplication and the acknowledgement rule, never on
this lock: it saves refused inserts (286) and false early "ok"s, no more.
"""

from __future__ import annotations

import threading
import time
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import structlog
from kazoo.client import KazooClient
from kazoo.exceptions import LockTimeout
from kazoo.recipe.lock import Lock
from kazoo.security import OPEN_ACL_UNSAFE

from blockhouse.errors import Permanent, Retryable
from blockhouse_aggregator.coordination.claims import place
from blockhouse_aggregator.coordination.session import Session, SessionState
from blockhouse_aggregator.coordination.znodes import translated

log = structlog.get_logger(__name__)


class LockState(StrEnum):
    HELD = "held"
    UNSURE = "unsure"
    """The connection is gone: the lock is ours until the server expires the session, at a time that is not reported."""
    LOST = "lost"
    """The session ended: another process may hold the lock."""


@dataclass(frozen=True, slots=True)
class TableLock:
    """A lock taken in one generation of the session. Release it in every case, also when it is lost."""

    table: str
    _lock: Lock
    _session: Session
    _generation: int
    _common: Lock | None = None
    """The lock that pipelines of all roots share."""

    @property
    def nodes(self) -> tuple[str, ...]:
        """The ephemeral nodes that are the lock as long as they are there: what a proof checks."""
        locks = (self._lock,) if self._common is None else (self._lock, self._common)
        return tuple(f"{lock.path}/{lock.node}" for lock in locks)

    @property
    def state(self) -> LockState:
        generation, state = self._session.generation, self._session.state
        if generation != self._generation or state is SessionState.LOST:
            return LockState.LOST
        return LockState.HELD if state is SessionState.CONNECTED else LockState.UNSURE

    @property
    def valid(self) -> bool:
        """Whether an insert may START under it now. False while unsure; true again if the session survived."""
        return self.state is LockState.HELD


class _MakesOpenNodes:
    """A client whose new nodes every login may read: who waits for a lock watches the node before its own."""

    def __init__(self, client: KazooClient) -> None:
        self._client = client

    def create(self, *args: Any, **options: Any) -> Any:
        return self._client.create(*args, acl=OPEN_ACL_UNSAFE, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class TableLocks:
    """The locks of one shard. Thread-safe; any number of tables at once.

    A table has two: `<root>/locks/<shard>/<table>`, which aggregators of older versions take too, and one beside the
    claims on it (`claims.py`), where pipelines of all roots meet; taken in this order, so that no two wait for each
    other.
    `holder` is written into the lock's node, so that a person with zkCli sees who holds and who waits.
    """

    def __init__(self, session: Session, shard: str, *, holder: str) -> None:
        self._session = session
        self._shard = shard
        self._holder = holder
        self._guard = threading.Lock()
        # Nodes we could not delete would block the table for as long as our session lives: (path, prefix of the node).
        self._leftovers: set[tuple[str, str]] = set()
        self._places: dict[str, str | None] = {}
        """Where pipelines of all roots lock a table, by its node; None: it may not be used."""
        session.add_listener(self._on_state)

    def acquire(self, table: str, timeout: float, table_path: str | None = None) -> TableLock | None:
        """The lock of `database.table`, first come first served, or None after `timeout` seconds. With `table_path`,
        its node in ZooKeeper, also against pipelines of other roots.

        Two acquires of one table exclude each other in the same process too. Raises Retryable when ZooKeeper is
        unavailable; when it becomes so in the middle the call may overrun until it is back or the session is closed.
        """
        if self._session.state is not SessionState.CONNECTED:
            raise Retryable(f"lock of {table}: no ZooKeeper session ({self._session.state})", after=0.5)
        self._sweep()
        generation, end = self._session.generation, time.monotonic() + timeout
        shared = None if table_path is None else self._shared(table_path)
        own = self._take(self._path(table), timeout)
        if own is None or shared is None:
            return None if own is None else TableLock(table, own, self._session, generation)
        common = None
        try:
            common = self._take(shared, max(0.1, end - time.monotonic()), of_all=True)
        finally:
            if common is None:
                self._discard(own)
        return None if common is None else TableLock(table, own, self._session, generation, common)

    def _shared(self, table_path: str) -> str | None:
        """Where pipelines of all roots and logins lock the table; None where another login owns what is above: all is
        as it was without such a place then."""
        if table_path not in self._places:
            path = f"{place(table_path)}/locks"
            try:
                self._session.znodes.ensure(path, of_all=True)
                self._places[table_path] = path
            except Permanent as denied:
                self._places[table_path] = None
                log.warning("locks.not_shared", path=path, why=str(denied))
        return self._places[table_path]

    def _take(self, path: str, timeout: float, *, of_all: bool = False) -> Lock | None:
        client = self._session.client
        lock = Lock(_MakesOpenNodes(client) if of_all else client, path, self._holder)
        acquired = False
        try:
            with translated(lock.path), suppress(LockTimeout):
                acquired = lock.acquire(timeout=timeout)
        finally:
            if not acquired:
                self._discard(lock)
        return lock if acquired else None

    def release(self, lock: TableLock) -> None:
        """Give the lock back. Never raises: if ZooKeeper is unavailable the node is deleted as soon as it is back.

        Also of a lost lock: when the session ended during `acquire`, kazoo waited on in the next one, and the node
        that it made there lives as long as that session.
        """
        if lock._common is not None:
            self._discard(lock._common)
        self._discard(lock._lock)

    def contended(self, table: str) -> bool:
        """Whether a process waits for the lock, beside its holder. Raises Retryable when ZooKeeper is unavailable."""
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
        """Delete the nodes of ours that are not needed any more; what fails is tried again later."""
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
