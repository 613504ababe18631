"""A session commits under the member id that its partitions were assigned to, and under no other one.

On a real broker: `test_kafka_commit_fate.py`, "rejoins too late".
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.kafka_login import Login
from blockhouse_aggregator.kafka import session as session_module
from blockhouse_aggregator.kafka.session import Session
from blockhouse_aggregator.protocol.commits import APPLIED, Refused, Unknown

PARTITIONS = [TopicPartition("events", 0)]
TARGET = TopicPartition("events", 0, 20)


class Client:
    """Joins again under another id whenever the test sets one; the group accepts whatever it sends."""

    def __init__(self, config: dict[str, Any]) -> None:
        self.member_id = "first"
        self.sent: list[int] = []
        self.while_sending: Callable[[], None] = lambda: None
        self.heard: dict[str, Any] = {}

    def subscribe(self, topics: list[str], **heard: Any) -> None:
        self.heard = heard

    def memberid(self) -> str:
        return self.member_id

    def commit(self, *, offsets: list[TopicPartition], asynchronous: bool) -> list[TopicPartition]:
        self.while_sending()
        self.sent += [offset.offset for offset in offsets]
        return offsets

    def close(self) -> None: ...

    def assign(self) -> None:
        self.heard["on_assign"](self, PARTITIONS)

    def lose(self) -> None:
        self.heard["on_lost"](self, PARTITIONS)


@contextmanager
def assigned(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Session, Client]]:
    clients: list[Client] = []

    def made(config: dict[str, Any]) -> Client:
        clients.append(Client(config))
        return clients[-1]

    def ignored(*_: Any) -> None: ...

    monkeypatch.setattr(session_module, "Consumer", made)
    login = Login(KafkaCluster(name="a", bootstrap_servers="localhost:9092"))
    session = Session(
        {"client.id": "r1"},
        "events",
        login,
        on_assign=ignored,
        on_revoke=ignored,
        on_lost=ignored,
        on_error=_unexpected,
    )
    clients[0].assign()
    try:
        yield session, clients[0]
    finally:
        session.close()


def _unexpected(error: KafkaError) -> None:
    raise AssertionError(error)


def test_under_its_own_id_it_commits(monkeypatch: pytest.MonkeyPatch) -> None:
    with assigned(monkeypatch) as (session, client):
        assert not session.replaced()
        assert session.commit(TARGET, 10) == APPLIED
        assert session.commit_in_callback(TARGET, 10) == APPLIED
        assert client.sent == [20, 20]


@pytest.mark.parametrize("member_id", ["", "second"])
def test_under_another_id_it_sends_nothing(monkeypatch: pytest.MonkeyPatch, member_id: str) -> None:
    with assigned(monkeypatch) as (session, client):
        client.member_id = member_id
        assert session.replaced()
        assert session.commit(TARGET, 10) == Refused("UnknownMember", retry=False)
        assert session.commit_in_callback(TARGET, 10) == Refused("UnknownMember", retry=False)
        client.assign()  # of more partitions: those held before are no better for it
        assert session.replaced()
        assert client.sent == []


def test_an_id_that_changes_while_a_commit_is_sent_makes_its_fate_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    with assigned(monkeypatch) as (session, client):
        client.while_sending = lambda: setattr(client, "member_id", "second")
        assert isinstance(session.commit(TARGET, 10), Unknown)


def test_what_is_assigned_after_a_loss_is_held_under_the_id_of_then(monkeypatch: pytest.MonkeyPatch) -> None:
    with assigned(monkeypatch) as (session, client):
        client.member_id = ""
        client.lose()
        assert not session.replaced()
        client.member_id = "second"
        client.assign()
        assert not session.replaced()
        assert session.commit(TARGET, 10) == APPLIED
