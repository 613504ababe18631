"""Claims and locks of tables on a real ZooKeeper, where pipelines of different roots meet."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest

from blockhouse.config.endpoints import ZooKeeper
from blockhouse.config.secrets import SecretRef
from blockhouse.errors import Blocked, Permanent, Retryable
from blockhouse_aggregator.coordination import claims
from blockhouse_aggregator.coordination.claims import TableClaims, place
from blockhouse_aggregator.coordination.locks import TableLocks
from blockhouse_aggregator.coordination.session import Session
from e2e.stack import Stack
from tests.integration.conftest import Names

pytestmark = pytest.mark.integration

Opener = Callable[..., Session]
UNNAMED = frozenset({"_kafka_cluster", "_kafka_partition", "_kafka_offset"})
OURS, THEIRS = ("a", "events/1"), ("a", "other/2")


@pytest.fixture
def opened(stack: Stack, names: Names) -> Iterator[Opener]:
    """opened("one", login="") is a session of a pipeline of that name, whose root no other one has."""
    with ExitStack() as closing:

        def open_(name: str, login: str = "") -> Session:
            config = ZooKeeper(servers=stack.zookeeper.connect, root=f"{names.zookeeper_root}-{name}")
            if login:
                secret = {"username": login, "password": SecretRef(env="ZK_PASSWORD")}
                config = config.model_copy(update=secret)
            return closing.enter_context(Session(config))

        yield open_


@pytest.fixture
def path(names: Names) -> str:
    """Of a table's node, as ClickHouse makes it."""
    return f"/clickhouse/tables/{names.table}"


def test_a_claim_is_of_one_table_and_ends_with_it(opened: Opener, path: str) -> None:
    one, other = opened("one"), opened("other")
    first, second = TableClaims(one, "first"), TableClaims(other, "second")
    with pytest.raises(Retryable, match="no node"):
        first.claim("db.t", path, OURS, UNNAMED)
    one.znodes.create(path, b"")
    assert first.claim("db.t", path, OURS, UNNAMED)
    with pytest.raises(Blocked, match="first"):
        second.claim("db.t", path, THEIRS, UNNAMED)
    assert set(second.all("db.t", path).claimants) == {"first"}, "what was refused claims nothing"

    # dropped and made again, which only the number of its creation shows
    one.znodes.delete(path)
    one.znodes.create(path, b"")
    assert second.claim("db.t", path, THEIRS, UNNAMED)
    with pytest.raises(Blocked, match="second"):
        first.claim("db.t", path, OURS, UNNAMED)

    assert first.release("db.t", path, "second")
    assert not first.release("db.t", path, "third")
    assert not first.claim("db.t", path, OURS, UNNAMED), "the rows of the second one are there still"


def test_pipelines_of_different_roots_exclude_each_other(opened: Opener, path: str) -> None:
    one, other = opened("one"), opened("other")
    ours, theirs = TableLocks(one, "01", holder="r1"), TableLocks(other, "01", holder="r2")
    lock = ours.acquire("db.t", 5, path)
    assert lock is not None
    assert theirs.acquire("db.t", 0.3, path) is None
    assert theirs.holders("db.t") == (), "the lock of its own root is free again"
    elsewhere = theirs.acquire("db.t", 5, f"{path}-other")
    assert elsewhere is not None
    theirs.release(elsewhere)
    ours.release(lock)
    later = theirs.acquire("db.t", 5, path)
    assert later is not None
    assert [other.znodes.get(node) is not None for node in later.nodes] == [True, True]
    assert later.nodes[1].startswith(f"{place(path)}/locks/"), "beside the table's node, not under it"


def test_pipelines_of_different_logins_meet_all_the_same(
    opened: Opener, path: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZK_PASSWORD", "secret")
    one, other, without = opened("one", login="a"), opened("other", login="b"), opened("third")
    without.znodes.create(path, b"")
    lock = TableLocks(one, "01", holder="r1").acquire("db.t", 5, path)
    assert lock is not None
    assert TableClaims(one, "first").claim("db.t", path, OURS, UNNAMED)
    for each in (other, without):
        assert TableLocks(each, "01", holder="r2").acquire("db.t", 0.3, path) is None
        with pytest.raises(Blocked, match="first"):
            TableClaims(each, "second").claim("db.t", path, THEIRS, UNNAMED)
    named = UNNAMED | {"_kafka_topic"}
    assert not TableClaims(other, "second").claim("db.t", path, THEIRS, named), "written over what the first one wrote"
    assert set(TableClaims(one, "first").all("db.t", path).claimants) == {"first", "second"}


def test_a_place_of_another_login_is_left_alone(opened: Opener, names: Names, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ZK_PASSWORD", "secret")
    monkeypatch.setattr(claims, "TABLES", f"{names.zookeeper_root}-private/tables")
    path = f"/clickhouse/tables/{names.table}"
    owner, stranger = opened("owner", login="a"), opened("stranger", login="b")
    owner.znodes.ensure(f"{names.zookeeper_root}-private")
    stranger.znodes.create(path, b"")
    lock = TableLocks(stranger, "01", holder="r2").acquire("db.t", 5, path)
    assert lock is not None
    assert len(lock.nodes) == 1, "the lock of its own root alone, as before there was another one"
    with pytest.raises(Permanent) as denied:
        TableClaims(stranger, "second").claim("db.t", path, THEIRS, UNNAMED)
    assert denied.value.reason == claims.ACCESS_DENIED
