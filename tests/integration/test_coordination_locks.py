"""Locks of tables on a real ZooKeeper: exclusive, seen, given back, and gone with the session."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from kazoo.client import KazooClient

from blockhouse.config.endpoints import ZooKeeper
from blockhouse.errors import Retryable
from blockhouse_aggregator.coordination.locks import LockState, TableLocks
from blockhouse_aggregator.coordination.session import Session, SessionState
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.conftest import Names

pytestmark = pytest.mark.integration

Opener = Callable[..., tuple[Session, TableLocks]]
SESSION_SECONDS = 30
"""Outlasts a busy machine that starts ZooKeeper again: only what a test does ends a session."""


@pytest.fixture
def opened(stack: Stack, names: Names) -> Iterator[Opener]:
    """opened("r1") is a session of its own and its locks, as one aggregator has them; with `addresses` of 2 it takes
    the server for an ensemble of two."""
    with ExitStack() as closing:

        def open_(holder: str, addresses: int = 1) -> tuple[Session, TableLocks]:
            servers = ",".join([stack.zookeeper.connect] * addresses)
            config = ZooKeeper(servers=servers, root=names.zookeeper_root, session_timeout_seconds=SESSION_SECONDS)
            session = closing.enter_context(Session(config, timeout=15.0))
            return session, TableLocks(session, "01", holder=holder)

        yield open_


def expire(session: Session, stack: Stack) -> None:
    """End the session on the server, as if it had not been heard of for too long."""
    thief = KazooClient(stack.zookeeper.connect, client_id=session.client.client_id)
    thief.start(timeout=10)
    thief.stop()
    thief.close()


def test_only_one_holds_a_table_and_other_tables_are_free(opened: Opener) -> None:
    (_, ours), (_, theirs) = opened("r1"), opened("r2")
    lock = ours.acquire("db.clicks", timeout=30)
    assert lock is not None
    assert lock.valid
    assert theirs.acquire("db.clicks", timeout=0.3) is None
    assert theirs.acquire("db.views", timeout=30) is not None
    assert ours.acquire("db.clicks", timeout=0.3) is None  # not even the same process twice
    assert theirs.holders("db.clicks") == ("r1",)  # those that stopped waiting left nothing behind


def test_who_waits_is_seen_and_gets_the_lock_when_it_is_released(opened: Opener) -> None:
    (_, ours), (_, theirs) = opened("r1"), opened("r2")
    lock = ours.acquire("db.clicks", timeout=30)
    assert lock is not None
    assert not ours.contended("db.clicks")
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(theirs.acquire, "db.clicks", 20)
        assert wait_until(lambda: ours.contended("db.clicks"), timeout=60)
        assert ours.holders("db.clicks") == ("r1", "r2")
        ours.release(lock)
        following = waiting.result(60)
    assert following is not None
    assert following.valid
    assert ours.holders("db.clicks") == ("r2",)


def test_many_tables_are_locked_at_once_from_many_threads(opened: Opener) -> None:
    _, ours = opened("r1")
    tables = [f"db.t{n}" for n in range(12)]
    with ThreadPoolExecutor(6) as pool:
        taken = list(pool.map(lambda table: ours.acquire(table, 10), tables))
    assert all(lock is not None and lock.valid for lock in taken)


def test_a_lost_session_makes_the_lease_invalid_and_frees_the_lock(stack: Stack, opened: Opener) -> None:
    (session, ours), (_, theirs) = opened("r1"), opened("r2")
    states: list[SessionState] = []
    session.add_listener(states.append)
    lock = ours.acquire("db.clicks", timeout=30)
    assert lock is not None

    expire(session, stack)

    assert wait_until(lambda: lock.state is LockState.LOST, timeout=60)
    assert SessionState.LOST in states
    assert theirs.acquire("db.clicks", timeout=30) is not None
    # and it stays invalid in the next session
    assert wait_until(lambda: session.state is SessionState.CONNECTED, timeout=60)
    assert not lock.valid
    ours.release(lock)  # harmless
    assert theirs.holders("db.clicks") == ("r2",)


def test_a_wait_that_outlives_its_session_leaves_no_lock_behind(stack: Stack, opened: Opener) -> None:
    """kazoo continues to wait in the new session, with a new node: what comes of it must be released like any other."""
    (_, ours), (session, theirs) = opened("r1"), opened("r2")
    lock = ours.acquire("db.clicks", timeout=30)
    assert lock is not None
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(theirs.acquire, "db.clicks", 30)
        assert wait_until(lambda: ours.contended("db.clicks"), timeout=60)
        generation = session.generation
        expire(session, stack)
        assert wait_until(lambda: session.generation > generation and ours.contended("db.clicks"), timeout=60)
        ours.release(lock)
        late = waiting.result(60)
    assert late is not None
    assert late.state is LockState.LOST
    theirs.release(late)
    assert ours.acquire("db.clicks", timeout=30) is not None


def test_while_zookeeper_is_unavailable_a_lease_is_unsure_and_held_again_when_the_session_survived(
    stack: Stack, opened: Opener
) -> None:
    _, ours = opened("r1")
    lock = ours.acquire("db.clicks", timeout=30)
    assert lock is not None
    stack.zookeeper.kill()
    assert wait_until(lambda: lock.state is LockState.UNSURE, timeout=60)
    assert not lock.valid
    with pytest.raises(Retryable):
        ours.acquire("db.views", timeout=1)
    stack.zookeeper.start()
    assert wait_until(lambda: lock.valid, timeout=60)


def test_a_lock_released_while_zookeeper_is_unavailable_is_free_when_it_is_back(stack: Stack, opened: Opener) -> None:
    # A server that accepts a connection while it starts may never answer it, for which a client waits its session's
    # timeout divided by the servers: with one the session would expire.
    (session, ours), (_, theirs) = opened("r1", addresses=2), opened("r2")
    lock = ours.acquire("db.clicks", timeout=30)
    assert lock is not None
    stack.zookeeper.kill()
    assert wait_until(lambda: session.state is SessionState.SUSPENDED, timeout=60)
    ours.release(lock)
    stack.zookeeper.start()
    assert wait_until(lambda: session.state is SessionState.CONNECTED, timeout=60)
    generation = session.generation

    def free() -> bool:
        try:
            return theirs.holders("db.clicks") == ()
        except Retryable:
            return False

    assert wait_until(free, timeout=60)
    assert session.generation == generation == lock._generation  # it was deleted, it did not expire


def test_closing_a_session_frees_its_locks_at_once(opened: Opener) -> None:
    (session, ours), (_, theirs) = opened("r1"), opened("r2")
    assert ours.acquire("db.clicks", timeout=30) is not None
    session.close()
    assert theirs.acquire("db.clicks", timeout=30) is not None
