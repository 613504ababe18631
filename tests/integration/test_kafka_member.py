"""Group members on real brokers: who owns what, and which commits are accepted."""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack

import pytest
from confluent_kafka import Consumer, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.pipeline import Kafka
from blockhouse.errors import Permanent
from blockhouse.kafka_login import Login
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.group import Committed
from blockhouse_aggregator.kafka.session import PartitionsCallback, Session, settings
from blockhouse_aggregator.protocol.commits import APPLIED, STALE_EPOCH, Applied, CommitOutcome, Refused
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.conftest import Names, TopicFactory
from tests.integration.kafka_recorder import Event, Recorder, member, settings_of

pytestmark = pytest.mark.integration


def stranger(cluster: KafkaCluster, kafka: Kafka, **callbacks: PartitionsCallback) -> Session:
    """A session under the name r1 that no member looks after."""
    heard: dict[str, PartitionsCallback] = dict.fromkeys(("on_assign", "on_revoke", "on_lost"), lambda *_: None)
    session = settings(cluster, kafka, "r1")
    return Session(session, kafka.topic, Login(cluster), **{**heard, **callbacks}, on_error=lambda _: None)


def test_a_new_group_owns_everything_and_has_committed_nothing(stack: Stack, topic: TopicFactory, names: Names) -> None:
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic(2), names.group)
    with member(cluster, kafka, "r1") as (subject, heard):
        owned = heard.owns(2)
        for stream, epoch in owned.items():
            assert subject.committed(stream, epoch).result(60) == Committed(None)
        assert heard.failures == []


def test_a_commit_is_read_back_with_its_metadata(stack: Stack, topic: TopicFactory, names: Names) -> None:
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic(1), names.group)
    with member(cluster, kafka, "r1") as (subject, heard):
        ((stream, epoch),) = heard.owns(1).items()
        assert subject.commit(stream, epoch, 7, "v2 späte Größe", leader_epoch=0).result(60) == APPLIED
        assert subject.committed(stream, epoch).result(60) == Committed(7, "v2 späte Größe", 0)


@pytest.mark.parametrize("letter", ["x", "ß"])
def test_metadata_of_4095_units_is_stored_and_of_4096_refused(
    letter: str, stack: Stack, topic: TopicFactory, names: Names
) -> None:
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic(1), names.group)
    with member(cluster, kafka, "r1") as (subject, heard):
        ((stream, epoch),) = heard.owns(1).items()
        assert subject.commit(stream, epoch, 1, letter * 4095).result(60) == APPLIED
        refused = subject.commit(stream, epoch, 2, letter * 4096).result(60)
        assert refused == Refused("OffsetMetadataTooLarge")
        assert subject.committed(stream, epoch).result(60) == Committed(1, letter * 4095, None)


def test_a_commit_under_another_epoch_is_refused_while_the_broker_cannot_even_be_asked(
    stack: Stack, topic: TopicFactory, names: Names
) -> None:
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic(1), names.group)
    with member(cluster, kafka, "r1") as (subject, heard):
        ((stream, epoch),) = heard.owns(1).items()
        stack.kafka["a"].brokers[0].freeze()
        assert subject.commit(stream, epoch - 1, 1, "stale").result(1) == STALE_EPOCH
        assert subject.commit(StreamId("a", stream.topic, 99), epoch, 1, "never owned").result(1) == STALE_EPOCH
        with pytest.raises(Permanent, match="not owned"):
            subject.committed(stream, epoch + 1).result(1)
        stack.heal()


def test_a_rebalance_drops_a_stream_before_the_other_member_gets_it(
    stack: Stack, topic: TopicFactory, names: Names
) -> None:
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic(4), names.group)
    events: list[Event] = []
    with member(cluster, kafka, "r1", events) as (first, heard_first):
        before = heard_first.owns(4)
        with member(cluster, kafka, "r2", events) as (second, heard_second):
            moved = heard_second.owns(2)
            kept = heard_first.owns(2)
            assert moved.keys() | kept.keys() == before.keys()
            assert kept.items() <= before.items()  # streams that stay keep their epoch
            for stream, epoch in moved.items():
                dropped = events.index(("r1", "dropped", stream, before[stream]))
                assert dropped < events.index(("r2", "assigned", stream, epoch))
                assert first.commit(stream, before[stream], 1, "late").result(60) == STALE_EPOCH
                assert second.commit(stream, epoch, 2, "new").result(60) == APPLIED
        assert len(heard_first.owns(4)) == 4  # the second left: back at once, not after its session time-out


def test_what_is_committed_while_a_stream_is_being_released_is_what_the_next_owner_reads(
    stack: Stack, topic: TopicFactory, names: Names
) -> None:
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic(2), names.group, commit_timeout=10)
    events: list[Event] = []
    with member(cluster, kafka, "r1", events) as (first, heard_first):
        held = heard_first.owns(2)
        heard_first.settled = Future()
        with member(cluster, kafka, "r2", events) as (second, heard_second):
            heard_first.wait(lambda: any(event[1] == "settling" for event in events))
            ((_, _, moving),) = events[2:]
            ((stream, epoch),) = moving.items()
            (kept,) = held.keys() - moving.keys()
            joining = first.join()  # anything else waits
            assert first.commit(stream, epoch, 5, "the last").result(60) == APPLIED
            assert first.commit(kept, held[kept], 6, "meanwhile").result(60) == APPLIED
            assert not joining.done()
            heard_first.settled.set_result(None)
            ((_, other),) = heard_second.owns(1).items()
            assert second.committed(stream, other).result(60) == Committed(5, "the last")
            assert first.commit(stream, epoch, 7, "too late").result(60) == STALE_EPOCH
            joining.result(60)


def test_a_stream_that_never_settles_is_released_all_the_same(stack: Stack, topic: TopicFactory, names: Names) -> None:
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic(2), names.group)
    with member(cluster, kafka, "r1") as (_, heard_first):
        heard_first.owns(2)
        heard_first.settled = Future()
        with member(cluster, kafka, "r2") as (_, heard_second):
            heard_second.owns(1, timeout=60)
            assert heard_first.settled.cancelled()


def test_a_commit_during_a_rebalance_is_stored_or_refused_for_certain(
    stack: Stack, topic: TopicFactory, names: Names
) -> None:
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic(4), names.group)
    done = threading.Event()
    outcomes: set[CommitOutcome] = set()
    with member(cluster, kafka, "r1") as (subject, heard):
        heard.owns(4)

        def commit_all_the_time() -> dict[StreamId, int]:
            stored = dict.fromkeys(heard.owned, 0)
            number = 0
            while not done.is_set():
                for stream, epoch in list(heard.owned.items()):
                    number += 1
                    outcome = subject.commit(stream, epoch, number, str(number)).result(60)
                    outcomes.add(outcome)
                    stored[stream] = number if outcome == APPLIED else stored[stream]
            return stored

        with ThreadPoolExecutor(1) as pool:
            committing = pool.submit(commit_all_the_time)
            for other in ("r2", "r3", "r4"):
                with member(cluster, kafka, other) as (_, heard_other):
                    heard_other.owns(2)
                heard.owns(4)
            done.set()
            stored = committing.result(60)
        for stream, epoch in heard.owned.items():  # what was refused left no trace, what was stored was not undone
            number = stored[stream]
            assert subject.committed(stream, epoch).result(60) == Committed(number, str(number))
    assert {type(outcome) for outcome in outcomes} == {Applied, Refused}
    assert all(
        outcome in (APPLIED, STALE_EPOCH) or (isinstance(outcome, Refused) and outcome.retry) for outcome in outcomes
    )
    assert "rejoin" not in heard.drops


def test_leaving_hands_over_at_once_and_joining_comes_back(stack: Stack, topic: TopicFactory, names: Names) -> None:
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic(2), names.group, session_timeout=90)
    with member(cluster, kafka, "r1") as (first, heard_first), member(cluster, kafka, "r2") as (_, heard_second):
        heard_first.owns(1), heard_second.owns(1)
        began = time.monotonic()
        first.leave().result(60)
        assert heard_first.drops[-1] == "revoked"
        assert heard_first.owned == {}
        heard_second.owns(2)
        assert time.monotonic() - began < 60  # the session time-out is 90
        first.join().result(60)
        heard_first.owns(1)


def test_a_quick_restart_under_the_same_name_moves_no_stream(stack: Stack, topic: TopicFactory, names: Names) -> None:
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic(4), names.group, session_timeout=30)
    with member(cluster, kafka, "r2") as (_, heard_second):
        with member(cluster, kafka, "r1") as (first, heard_first):
            mine = heard_first.owns(2)
            theirs = heard_second.owns(2)
            first.close(leave=False)
        began = time.monotonic()
        with member(cluster, kafka, "r1") as (_, heard_again):
            assert heard_again.owns(2).keys() == mine.keys()
            assert time.monotonic() - began < 20
            assert heard_second.owned == theirs


def test_of_two_processes_under_one_name_one_stops_with_a_clear_text(
    stack: Stack, topic: TopicFactory, names: Names
) -> None:
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic(1), names.group)
    with member(cluster, kafka, "r1") as (older, heard_older):
        ((stream, epoch),) = heard_older.owns(1).items()
        with member(cluster, kafka, "r1") as (newer, heard_newer):
            heard_newer.owns(1)
            refused = older.commit(stream, epoch, 5, "of the fenced").result(60)
            assert isinstance(refused, Refused)
            heard_older.wait(lambda: heard_older.failures != [])
            (failure,) = heard_older.failures
            assert isinstance(failure, Permanent)
            assert failure.reason == "InstanceFenced"
            assert "group.instance.id" in str(failure)
            # It came back once, and was fenced by the other's coming back.
            assert heard_older.owned == {}
            assert set(heard_older.drops) == {"lost"}
            heard_newer.wait(lambda: heard_newer.drops != [] and stream in heard_newer.owned)
            new_epoch = heard_newer.owned[stream]
            assert newer.committed(stream, new_epoch).result(60) == Committed(None)
            assert newer.commit(stream, new_epoch, 6, "of who stays").result(60) == APPLIED
            assert heard_newer.failures == []


def test_a_member_that_is_fenced_once_comes_back(stack: Stack, topic: TopicFactory, names: Names) -> None:
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic(1), names.group)
    with member(cluster, kafka, "r1") as (subject, heard):
        ((stream, epoch),) = heard.owns(1).items()
        # Like a request of its own that the network kept: it takes the name, and no process is behind it.
        stray = stranger(cluster, kafka)
        try:
            heard.wait(lambda: heard.drops == ["lost"])
        finally:
            stray.close()
        again = heard.owns(1)[stream]
        assert subject.commit(stream, epoch, 5, "of the fenced").result(60) == STALE_EPOCH
        assert subject.commit(stream, again, 6, "back").result(60) == APPLIED
        assert heard.failures == []


def test_a_stream_that_was_released_to_no_member_is_assigned_again(
    stack: Stack, topic: TopicFactory, names: Names
) -> None:
    """Released by a member that is replaced before it asks for the round that would move it: the coordinator hands
    the newcomer what was left, and finds the group stable."""
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic(4), names.group)
    with ExitStack() as members:
        heard: dict[str, Recorder] = {}

        def join(instance: str) -> None:
            _, heard[instance] = members.enter_context(member(cluster, kafka, instance))

        def replaced_meanwhile(_: Consumer, revoked: list[TopicPartition]) -> None:
            join("r1")
            heard["r1"].owns(4 - len(revoked))

        assigned: list[TopicPartition] = []
        predecessor = stranger(
            cluster, kafka, on_assign=lambda _, new: assigned.extend(new), on_revoke=replaced_meanwhile
        )
        assert wait_until(lambda: predecessor.poll() == [] and len(assigned) == 4, timeout=60)
        join("r2")
        assert wait_until(lambda: predecessor.poll() == [] and "r1" in heard, timeout=60)
        predecessor.close()
        owned = [stream for mine in heard.values() for stream in mine.owns(2, timeout=60)]
        assert len(set(owned)) == 4
        assert not any(mine.failures for mine in heard.values())


def test_a_commit_does_not_wait_for_a_poll(stack: Stack, topic: TopicFactory, names: Names) -> None:
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic(1), names.group)
    with member(cluster, kafka, "r1") as (subject, heard):
        ((stream, epoch),) = heard.owns(1).items()
        took = []
        for number in range(200):
            began = time.perf_counter()
            assert subject.commit(stream, epoch, number, "m" * 500).result(60) == APPLIED
            took.append(time.perf_counter() - began)
        assert sorted(took)[100] < 0.05  # a poll comes every 0.1 s


def test_an_unreachable_cluster_is_reported_once_and_its_return_once(
    stack: Stack, topic: TopicFactory, names: Names
) -> None:
    cluster, kafka = settings_of(stack.kafka["b"].bootstrap, topic(1), names.group, session_timeout=30)
    with member(cluster, kafka, "r1") as (_, heard):
        heard.owns(1)
        stack.kafka["b"].brokers[0].kill()
        heard.wait(lambda: len(heard.failures) == 1)
        assert heard.recoveries == 0
        stack.kafka["b"].brokers[0].start()
        heard.wait(lambda: heard.recoveries == 1)
        heard.owns(1)
        assert len(heard.failures) == 1
