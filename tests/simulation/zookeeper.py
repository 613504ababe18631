"""One ZooKeeper ensemble: sessions that expire, table locks, and the small durable things of a pipeline.

A client learns of an expired session only when it is reachable again, and a moment later.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

from blockhouse.errors import Retryable
from blockhouse.schema.model import Revision, TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.locks import TableLock
from blockhouse_aggregator.coordination.markers import StreamMarker, StreamMarkers
from blockhouse_aggregator.coordination.session import Listener, SessionState
from tests.simulation.clock import Process
from tests.simulation.world import World
from tests.simulation.znodes import SimZnodes

TICK = 0.5
IDS = 1000
"""Ids of tables in one schema history and in the next are so far from each other."""


class ZkSession:
    """One client's session: what it believes (`state`, `generation`), and what is so (`live`, `heard`)."""

    def __init__(self, ensemble: Ensemble, process: Process, zone: int) -> None:
        self.ensemble = ensemble
        self.process = process
        self.zone = zone
        self.state = SessionState.LOST
        self.generation = 0
        self.live = False
        self.heard = 0.0
        self.lost_since = 0.0
        self.listeners: list[Listener] = []
        self.on_check: Callable[[], None] = lambda: None
        """Called at each check whether one of its locks is still held."""
        self.znodes = ensemble.znodes

    @staticmethod
    def path(*names: str) -> str:
        return "/" + "/".join(names)

    def add_listener(self, listener: Listener) -> None:
        self.listeners.append(listener)

    def connect(self) -> None:
        if not self.ensemble.reachable(self):
            raise Retryable("zookeeper: no server answers", after=0.5)
        self._begin()
        self.ensemble.sessions.append(self)

    def close(self) -> None:
        self.ensemble.expire(self)
        if self in self.ensemble.sessions:
            self.ensemble.sessions.remove(self)

    def _begin(self) -> None:
        self.live, self.heard = True, self.ensemble.world.loop.time()
        self.state = SessionState.CONNECTED

    def learn_of_loss(self) -> None:
        """The client hears that its session is over, and gets a new one."""
        if self.process.alive and not self.live and self.ensemble.reachable(self):
            self.state = SessionState.LOST
            self.generation += 1
            for listener in self.listeners:
                listener(SessionState.LOST)
            self._begin()


class LockRequest:
    """A place in a table's queue. `granted` is done when it is first."""

    def __init__(self, session: ZkSession, table: str, granted: asyncio.Future[None]) -> None:
        self.session = session
        self.table = table
        self.granted = granted
        self.generation = session.generation
        self.path = f"/locks/{table}"
        self.node = session.ensemble.number()


class Ensemble:
    """The servers. `queues` are the locks, first come first served."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sessions: list[ZkSession] = []
        self.queues: dict[str, list[LockRequest]] = {}
        self._numbers = 0
        self.znodes = SimZnodes(self._locked, lambda: world.chance(world.setting.chances.proof_lost))
        setting = world.setting
        self.history = 0
        """The number of the schema history that is there: one that is set up again is another one."""
        self.tables = {f"default.t{number}" for number in range(setting.tables - setting.new_tables)}
        """Those that are in the schema history."""
        self.on_write: Callable[[str, str, StreamId], None] = lambda _step, _replica, _stream: None
        """Called right before a replica claims a restart ("claim") or marks a stream as started ("mark")."""
        world.later(TICK, self._tick)

    def marker(self, stream: StreamId) -> StreamMarker | None:
        """As every aggregator would read it now."""
        stands_in: Any = ZkSession(self, Process("anyone"), 0)
        return StreamMarkers(stands_in).get(stream)

    @property
    def identity(self) -> str:
        """Of the schema history."""
        return f"history {self.history}"

    def number(self) -> str:
        self._numbers += 1
        return str(self._numbers)

    def _locked(self, path: str) -> bool:
        _, _, table, node = path.split("/")
        return any(request.node == node for request in self.queues.get(table, []))

    def reachable(self, session: ZkSession) -> bool:
        """The ensemble's majority is in zone 0."""
        return session.process.running and self.world.zookeeper_up and self.world.linked(session.zone, 0)

    def _tick(self) -> None:
        now = self.world.loop.time()
        for session in list(self.sessions):
            if self.reachable(session):
                if session.live:
                    session.heard = now
                    session.state = SessionState.CONNECTED
                elif session.lost_since + TICK <= now:
                    session.lost_since = now
                    self.world.loop.call_later(
                        self.world.random.uniform(0.0, 0.3), session.learn_of_loss, context=session.process.context
                    )
            else:
                if session.process.running and session.state is SessionState.CONNECTED:
                    session.state = SessionState.SUSPENDED
                if (
                    session.live
                    and self.world.zookeeper_up
                    and now - session.heard > self.world.setting.session_timeout
                ):
                    self.expire(session)
                if not session.process.alive and not session.live:
                    self.sessions.remove(session)
        self.world.later(TICK, self._tick)

    def expire(self, session: ZkSession) -> None:
        """The session is over: its nodes vanish. The client may not know for long."""
        if not session.live:
            return
        session.live = False
        session.lost_since = self.world.loop.time() - TICK
        self.world.narrate("zookeeper", f"session of {session.process.name} is over")
        for table, queue in self.queues.items():
            queue[:] = [request for request in queue if request.session is not session]
            self._grant(table)

    def expire_all(self) -> None:
        for session in list(self.sessions):
            self.expire(session)

    def forget_streams(self) -> dict[str, tuple[bytes, int]]:
        """What was known of them, which is gone by now."""
        lost, self.znodes.nodes = self.znodes.nodes, {}
        return lost

    def ask(self, request: LockRequest) -> None:
        self.queues.setdefault(request.table, []).append(request)
        self._grant(request.table)

    def occupy(self, table: str, seconds: float) -> None:
        """A lock request of a client outside of this world, which is released after so many seconds."""
        stranger = ZkSession(self, Process("a tool"), 0)
        stranger.live = True
        request = LockRequest(stranger, table, self.world.loop.create_future())
        self.ask(request)
        self.world.later(seconds, self.remove, request)

    def remove(self, request: LockRequest) -> None:
        queue = self.queues.get(request.table, [])
        if request in queue:
            queue.remove(request)
            self._grant(request.table)

    def _grant(self, table: str) -> None:
        queue = self.queues.get(table)
        if queue and not queue[0].granted.done():
            queue[0].granted.set_result(None)


class _WatchedLock(TableLock):
    """Reports each check of it to its session."""

    __slots__ = ()

    @property
    def valid(self) -> bool:
        session: Any = self._session
        session.on_check()
        return super().valid


class SimLocks:
    """`ports.Locks`. The locks are the product's own; what they rest on is simulated."""

    def __init__(self, world: World, session: ZkSession) -> None:
        self._world = world
        self._session = session
        self.held: dict[str, TableLock] = {}
        self.on_hold: Callable[[], None] = lambda: None
        self.on_release: Callable[[str], None] = lambda _: None

    async def acquire(self, table: str, timeout: float, table_path: str | None = None) -> TableLock | None:
        session, ensemble = self._session, self._session.ensemble
        if session.state is not SessionState.CONNECTED:
            raise Retryable(f"lock of {table}: no ZooKeeper session ({session.state})", after=0.5)
        loop = self._world.loop
        request = LockRequest(session, table, loop.create_future())
        await asyncio.sleep(self._world.trip(session.zone, 0))
        if session.live and ensemble.reachable(session):
            ensemble.ask(request)
        deadline = loop.time() + timeout
        while not request.granted.done():
            if request.generation != session.generation:
                ensemble.remove(request)  # it may have been asked for in the next session
                raise Retryable(f"lock of {table}: the session ended while it waited", after=0.5)
            if loop.time() >= deadline:
                ensemble.remove(request)
                return None
            await asyncio.wait({request.granted}, timeout=min(1.0, deadline - loop.time()))
        await asyncio.sleep(self._world.trip(session.zone, 0))
        lock = _WatchedLock(table, request, session, request.generation)  # type: ignore[arg-type]
        self.held[table] = lock
        self.on_hold()
        return lock

    async def release(self, lock: TableLock) -> None:
        if self.held.get(lock.table) is lock:
            self.on_release(lock.table)
            del self.held[lock.table]
        await asyncio.sleep(self._world.trip(self._session.zone, 0))
        request: Any = lock._lock
        # What cannot be deleted now is deleted when the ensemble is back.
        while request.session.live and not self._session.ensemble.reachable(request.session):
            await asyncio.sleep(TICK)
        self._session.ensemble.remove(request)

    def close(self) -> None: ...


class SimSchemas:
    """`ports.Schemas`: tables have one revision each, and come into the history when an owner meets them."""

    def __init__(self, ensemble: Ensemble, histories: Mapping[str, TableHistory]) -> None:
        self._ensemble = ensemble
        self._histories = histories

    async def identity(self) -> str:
        return self._ensemble.identity

    async def all(self) -> Mapping[str, TableHistory]:
        return {name: self._history(name) for name in sorted(self._ensemble.tables)}

    async def ensure_id(self, table: str) -> TableHistory:
        self._ensemble.tables.add(table)
        return self._history(table)

    def _history(self, name: str) -> TableHistory:
        found = self._histories[name]
        return found.model_copy(update={"id": found.id + IDS * self._ensemble.history})

    async def append(self, table: str, known_revisions: int, revision: Revision) -> TableHistory:
        raise AssertionError("no table changes here")

    def close(self) -> None: ...
