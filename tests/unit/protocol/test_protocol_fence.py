"""The protocol's two safeguards that live in the group member: the epoch of a commit, and a new member id.

On real brokers they are shown by `tests/integration/test_kafka_commit_fate.py` and `test_kafka_zombie.py`; here the
coordinator is a script, so that removing a safeguard is noticed in a second.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from confluent_kafka import KafkaError, TopicPartition

from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka import member as member_module
from blockhouse_aggregator.kafka.member import GroupMember
from blockhouse_aggregator.protocol.commits import APPLIED, STALE_EPOCH, CommitOutcome, Unknown
from tests.integration.kafka_recorder import Recorder, settings_of

STREAM = StreamId("a", "events", 0)
PARTITIONS = [TopicPartition("events", 0)]


class Consumer:
    def incremental_assign(self, partitions: list[TopicPartition]) -> None: ...

    def pause(self, partitions: list[TopicPartition]) -> None: ...


class Coordinator:
    """Accepts whatever a member sends, like a real one from a member it knows. A session is one member id."""

    def __init__(self) -> None:
        self.sessions: list[FakeSession] = []
        self.commits: list[int] = []
        self.outcome = APPLIED

    def open(self, *_: Any, **callbacks: Any) -> FakeSession:
        self.sessions.append(FakeSession(self, **callbacks))
        return self.sessions[-1]


class FakeSession:
    def __init__(self, coordinator: Coordinator, on_assign: Any, on_revoke: Any, on_lost: Any, on_error: Any) -> None:
        self.coordinator, self.on_assign, self.on_revoke, self.on_lost = coordinator, on_assign, on_revoke, on_lost
        self.pending: list[Callable[[Any, list[TopicPartition]], None]] = [on_assign]
        self.abandoned = False
        self.has_another_id = False

    def replaced(self) -> bool:
        return self.has_another_id

    def poll(self) -> list[KafkaError]:
        while self.pending:
            self.pending.pop(0)(Consumer(), [TopicPartition("events", 0)])
        return []

    def commit(self, target: TopicPartition, patience: float) -> CommitOutcome:
        if self.coordinator.outcome is APPLIED:
            self.coordinator.commits.append(target.offset)
        return self.coordinator.outcome

    def abandon(self) -> None:
        self.abandoned = True

    def leave(self, timeout: float) -> None: ...

    def close(self) -> None: ...


@contextmanager
def joined(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[GroupMember, Recorder, Coordinator]]:
    coordinator, heard = Coordinator(), Recorder()
    monkeypatch.setattr(member_module, "Session", coordinator.open)
    cluster, kafka = settings_of("127.0.0.1:1", "events", "group")
    member = GroupMember(cluster, kafka, "r1", heard)
    member.join().result(10)
    try:
        yield member, heard, coordinator
    finally:
        member.close(leave=True)


def test_a_plan_made_before_the_stream_was_lost_is_not_committed_after_it_came_back(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with joined(monkeypatch) as (member, heard, coordinator):
        # given a plan made in the first epoch
        planned_in = heard.owns(1)[STREAM]
        # when the stream is lost and comes back, the coordinator would accept the plan: it knows the member
        session = coordinator.sessions[0]
        session.pending += [session.on_lost, session.on_assign]
        heard.wait(lambda: heard.owned.get(STREAM, planned_in) > planned_in)
        # then the member does not even send it
        assert member.commit(STREAM, planned_in, 21, "stale").result(10) == STALE_EPOCH
        assert coordinator.commits == []
        assert member.commit(STREAM, heard.owned[STREAM], 30, "of today").result(10) == APPLIED
        assert coordinator.commits == [30]


def test_after_a_commit_of_unknown_fate_everything_is_dropped_and_a_new_member_id_joins(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with joined(monkeypatch) as (member, heard, coordinator):
        epoch = heard.owns(1)[STREAM]
        coordinator.outcome = Unknown("no answer")
        assert isinstance(member.commit(STREAM, epoch, 10, "lost?").result(10), Unknown)
        assert heard.drops == ["rejoin"]
        assert coordinator.sessions[0].abandoned
        # and only the new session's assignment lets anybody read or commit again
        assert len(coordinator.sessions) == 2
        assert heard.owns(1)[STREAM] > epoch


def test_what_was_held_under_another_member_id_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    with joined(monkeypatch) as (_, heard, coordinator):
        epoch = heard.owns(1)[STREAM]
        # when the client joined again under another id and kept its streams, which had another owner in between
        coordinator.sessions[0].has_another_id = True
        # then they are taken over again, from what is committed
        heard.wait(lambda: heard.owned.get(STREAM, epoch) > epoch, timeout=10)
        assert heard.drops == ["lost"]
        assert coordinator.sessions[0].abandoned
