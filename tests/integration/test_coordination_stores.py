"""Schema history, stream markers and decisions on a real ZooKeeper, with several processes' worth of sessions."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import replace

import pytest

from blockhouse.config.endpoints import ZooKeeper
from blockhouse.config.secrets import SecretRef
from blockhouse.errors import Permanent, Retryable
from blockhouse.schema.model import Column, Revision
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.locks import TableLocks
from blockhouse_aggregator.coordination.markers import Claim, Decision, Decisions, StreamMarker, StreamMarkers
from blockhouse_aggregator.coordination.schema_store import RevisionConflict, SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.coordination.znodes import VersionConflict
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.conftest import Names

pytestmark = pytest.mark.integration

Opener = Callable[[], Session]
STREAM = StreamId("a", "events-01", 3)


@pytest.fixture
def opened(stack: Stack, names: Names) -> Iterator[Opener]:
    """opened() is one more connected session of the same pipeline."""
    with ExitStack() as closing:
        config = ZooKeeper(servers=stack.zookeeper.connect, root=names.zookeeper_root)
        yield lambda: closing.enter_context(Session(config))


def revision(number: int, *columns: str) -> Revision:
    return Revision(
        number=number, columns=tuple(Column(name=name, type="UInt64", field=i) for i, name in enumerate(columns, 1))
    )


def test_a_table_gets_an_id_once_and_for_all_and_later_ones_higher_ids(opened: Opener) -> None:
    store = SchemaStore(opened())
    assert store.get("db.clicks") is None
    first = store.ensure_id("db.clicks").id
    second = store.ensure_id("db.vi/ews").id
    assert store.ensure_id("db.clicks").id == first < second < 36**5
    assert [(history.name, history.id) for history in store.all()] == [("db.clicks", first), ("db.vi/ews", second)]


def test_a_history_that_is_set_up_again_is_another_one_with_other_ids(opened: Opener) -> None:
    session = opened()
    store = SchemaStore(session)
    names = [f"db.t{n}" for n in range(20)]
    before, identity = {store.ensure_id(name).id for name in names}, store.identity()
    assert SchemaStore(opened()).identity() == identity

    session.client.delete(session.path("schema"), recursive=True)

    assert store.identity() != identity
    assert not before & {store.ensure_id(name).id for name in names}


def test_sessions_that_race_for_ids_agree(opened: Opener) -> None:
    tables = [f"db.t{n}" for n in range(8)]
    stores = [SchemaStore(opened()) for _ in range(4)]
    start = threading.Barrier(len(stores))

    def ask(turn: int) -> dict[str, int]:
        start.wait()
        return {name: stores[turn].ensure_id(name).id for name in tables[turn * 2 :] + tables[: turn * 2]}

    with ThreadPoolExecutor(len(stores)) as pool:
        answers = list(pool.map(ask, range(len(stores))))
    assert all(answer == answers[0] for answer in answers)
    assert len(set(answers[0].values())) == len(tables)


def test_revisions_are_appended_and_read_back(opened: Opener) -> None:
    store = SchemaStore(opened())
    store.ensure_id("db.clicks")
    first, second = revision(1, "id"), revision(2, "id", "text")
    assert store.append("db.clicks", 0, first).current == first
    assert store.append("db.clicks", 1, second).revisions == (first, second)
    assert store.append("db.clicks", 1, second).revisions == (first, second)  # the reply was lost: again
    elsewhere = SchemaStore(opened())
    found = elsewhere.get("db.clicks")
    assert found is not None
    assert found.revisions == (first, second)


def test_of_sessions_that_race_to_append_one_wins_and_the_others_see_what_it_wrote(opened: Opener) -> None:
    stores = [SchemaStore(opened()) for _ in range(4)]
    stores[0].ensure_id("db.clicks")
    start = threading.Barrier(len(stores))

    def race(n: int) -> Revision:
        start.wait()
        mine = revision(1, f"column_of_{n}")
        try:
            return stores[n].append("db.clicks", 0, mine).revisions[0]
        except RevisionConflict as conflict:
            return conflict.history.revisions[0]

    with ThreadPoolExecutor(len(stores)) as pool:
        seen = list(pool.map(race, range(len(stores))))
    assert all(winner == seen[0] for winner in seen)


def test_a_revision_that_does_not_follow_or_has_no_table_is_refused(opened: Opener) -> None:
    store = SchemaStore(opened())
    with pytest.raises(Permanent):
        store.append("db.unknown", 0, revision(1, "id"))
    store.ensure_id("db.clicks")
    with pytest.raises(ValueError, match="does not follow"):
        store.append("db.clicks", 0, revision(2, "id"))
    with pytest.raises(RevisionConflict):
        store.append("db.clicks", 1, revision(2, "id"))  # the first was never written


def test_foreign_content_is_named_not_guessed_at(opened: Opener) -> None:
    session = opened()
    store = SchemaStore(session)
    session.znodes.create(session.path("schema", "tables", "db.clicks"), b"rubbish")
    with pytest.raises(Permanent, match=r"schema/tables/db\.clicks"):
        store.get("db.clicks")


def test_a_watcher_hears_of_new_tables_and_revisions(opened: Opener) -> None:
    heard: list[tuple[str, int]] = []
    reader, writer = SchemaStore(opened()), SchemaStore(opened())

    def on_change(name: str) -> None:
        history = reader.get(name)
        heard.append((name, len(history.revisions) if history else -1))

    reader.watch(on_change)
    writer.ensure_id("db.clicks")
    assert wait_until(lambda: ("db.clicks", 0) in heard, timeout=60)
    writer.append("db.clicks", 0, revision(1, "id"))
    assert wait_until(lambda: ("db.clicks", 1) in heard, timeout=60)


def test_a_streams_marker_is_written_once_and_replaced_only_knowingly(opened: Opener) -> None:
    markers = StreamMarkers(opened())
    first = StreamMarker(topic_id="T1", started_ms=1, replica="r1")
    second = StreamMarker(topic_id="T2", started_ms=2, replica="r2")
    assert markers.get(STREAM) is None
    assert markers.ensure(STREAM, first) == first
    assert markers.ensure(STREAM, second) == first
    with pytest.raises(VersionConflict):
        markers.replace(STREAM, second, first)
    markers.replace(STREAM, first, second)
    assert StreamMarkers(opened()).get(STREAM) == second


def test_an_insert_is_proven_by_lock_claim_and_marker_together(opened: Opener) -> None:
    old, new = opened(), opened()
    lost, ours = StreamMarkers(old), StreamMarkers(new)
    ours.ensure(STREAM, StreamMarker(topic_id="T1", started_ms=1, replica="r1"))
    first = TableLocks(old, "01", holder="r1").acquire("db.clicks", 10)
    assert first is not None
    claim = Claim("r1/1/x", "T1", 5, 100, "h")
    for seq in (5, 5, 6):  # the same once more is a check, a later one a write
        lost.prove(STREAM, replace(claim, seq=seq), *first.nodes)
    found = ours.get(STREAM)
    assert found is not None
    assert (found.seq, found.position, found.owner) == (6, 100, "r1/1/x")

    # another owner, under a lock of its own, with a commit of its own
    other = TableLocks(new, "01", holder="r2").acquire("db.views", 10)
    assert other is not None
    with pytest.raises(Retryable, match="another owner continues"):
        ours.prove(STREAM, Claim("r2/1/y", "T1", 5, 90, "h"), *other.nodes)
    ours.prove(STREAM, Claim("r2/1/y", "T1", 7, 110, "h"), *other.nodes)

    with pytest.raises(Retryable, match="another owner's by now"):  # it still has its lock, but not the stream
        lost.prove(STREAM, replace(claim, seq=6), *first.nodes)
    with pytest.raises(Retryable, match="r2/1/y has claimed it since"):
        lost.prove(STREAM, replace(claim, seq=99), *first.nodes)
    new.znodes.delete(other.nodes[0])
    with pytest.raises(Retryable, match="its lock"):
        ours.prove(STREAM, Claim("r2/1/y", "T1", 8, 120, "h"), *other.nodes)
    found = ours.get(STREAM)
    assert found is not None
    assert (found.seq, found.owner) == (7, "r2/1/y"), "all of it or nothing"


def test_a_decision_is_taken_by_exactly_one(opened: Opener) -> None:
    both = [Decisions(opened()) for _ in range(2)]
    decision = Decision(action="acknowledge", by="ann", at_ms=1)
    subject = f"stream {STREAM}"
    both[0].put(subject, Decision(action="recut", by="bob", at_ms=0))
    both[0].put(subject, decision)  # she thought again
    assert both[1].get(subject) == decision
    start = threading.Barrier(2)

    def take(decisions: Decisions) -> bool:
        start.wait()
        return decisions.consume(subject, decision)

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(take, both)) == [False, True]
    assert both[0].get(subject) is None


def test_with_a_login_others_cannot_read_what_we_wrote(
    stack: Stack, names: Names, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("ZK_PASSWORD", "secret")
    open_config = ZooKeeper(servers=stack.zookeeper.connect, root=names.zookeeper_root)
    private = open_config.model_copy(update={"username": "bh", "password": SecretRef(env="ZK_PASSWORD")})
    with Session(private) as ours:
        SchemaStore(ours).ensure_id("db.clicks")
        with Session(open_config) as stranger, pytest.raises(Permanent) as refused:
            SchemaStore(stranger).get("db.clicks")
        assert refused.value.reason == "ZooKeeperAccessDenied"
        assert "secret" not in str(refused.value)


def test_a_session_without_an_ensemble_is_retryable() -> None:
    with pytest.raises(Retryable):
        Session(ZooKeeper(servers="127.0.0.1:1"), timeout=1.0).connect()
