"""The table of abnormal cases in docs/protocol.md, on real servers: every case stops or names exactly what it must.

One partition is one case, so that a restart of the aggregator shows many of them at once; the others continue.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import pytest
from typer.testing import CliRunner

from blockhouse.contract.interventions import AcceptRequest
from blockhouse.streams import StreamId
from blockhouse_aggregator.commands.streams import app as streams_command
from blockhouse_aggregator.coordination.locks import TableLocks
from e2e.pipeline import AggregatorProcess
from e2e.stack import Stack
from tests.integration.runtime_group import Group
from tests.integration.runtime_pipeline import Loading, eventually, healed, loading

pytestmark = [pytest.mark.integration, pytest.mark.long]

CONTROL, REWOUND, RESET, JUMPED, GARBLED, FOREIGN, TOO_FAR, ON_PURPOSE = range(8)
MESSAGES = 10
STARTED_AT = 4
"""Where ON_PURPOSE was set to start before any owner had loaded it."""
FOREIGN_METADATA = "written by another program"


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    folder = tmp_path_factory.mktemp("abnormal")

    def prepare(pipeline: Loading) -> None:
        group = Group(pipeline.pipeline)
        group.commit(TOO_FAR, 1000, "")
        group.commit(ON_PURPOSE, STARTED_AT, "")
        pipeline.feed.send(pipeline.feed.table("first"), MESSAGES)

    with loading(running_stack, folder, "abnormal", partitions=8, aggregators=1, clusters=1, before=prepare) as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed(running) as found:
        yield found


def stops(pipeline: Loading) -> Mapping[int, str]:
    """The reason of every stopped partition."""
    return {
        StreamId.parse(stream.stream).partition: stream.stopped.reason
        for stream in the_aggregator(pipeline).streams()
        if stream.stopped is not None
    }


def the_aggregator(pipeline: Loading) -> AggregatorProcess:
    (aggregator,) = pipeline.aggregators
    return aggregator


def accept(pipeline: Loading, partition: int, reason: str, *options: str) -> str:
    config = the_aggregator(pipeline).folder / "aggregator.yaml"
    decided = ["--config", str(config), "--why", "a test", *options]
    arguments = ["accept", pipeline.stream("a", partition), reason, *decided]
    result = CliRunner().invoke(streams_command, arguments)
    assert result.exit_code == 0, result.output
    return result.output


def alarms(pipeline: Loading, partition: int) -> list[str]:
    stream = the_aggregator(pipeline).stream(pipeline.stream("a", partition))
    return [alarm.reason for alarm in stream.alarms] if stream is not None else []


def test_offsets_set_before_the_first_start_are_used_when_they_can_be(pipeline: Loading) -> None:
    feed, table = pipeline.feed, "default.first"
    feed.forget(table, [("a", ON_PURPOSE, offset) for offset in range(STARTED_AT)])
    pipeline.wait("the impossible one stopped", lambda: stops(pipeline) == {TOO_FAR: "OffsetBeyondEnd"})
    accepted = [stream for stream in feed.streams if stream[1] != TOO_FAR]
    feed.wait_exact(table, streams=accepted)
    aggregator, name = the_aggregator(pipeline), pipeline.stream("a", TOO_FAR)
    aggregator.accept(name, AcceptRequest(by="ann", why="nothing was loaded", reason="OffsetBeyondEnd"))
    pipeline.settle(table)
    (begun,) = (each for each in aggregator.history() if each.stream == name)
    assert begun.accepted.startswith("OffsetBeyondEnd was accepted by ann at ")
    assert "(nothing was loaded)" in begun.accepted


def test_offsets_changed_by_a_tool_stop_their_stream_until_an_operator_decides(pipeline: Loading) -> None:
    feed, group = pipeline.feed, Group(pipeline.pipeline)
    aggregator = the_aggregator(pipeline)
    table = feed.table("tampered")
    feed.send(table, MESSAGES)
    pipeline.settle(table)
    aggregator.stop(grace=20)
    before = group.committed()
    metadata = before[CONTROL][1]
    group.commit(REWOUND, before[REWOUND][0] - 3, before[REWOUND][1])
    group.commit(RESET, 0, "")
    group.commit(JUMPED, before[JUMPED][0] + 5, before[JUMPED][1])
    group.commit(GARBLED, before[GARBLED][0], metadata[: len(metadata) // 2])
    group.commit(FOREIGN, 3, FOREIGN_METADATA)
    tampered = group.committed()
    feed.send(table, MESSAGES)  # meanwhile
    aggregator.start()

    reasons = {
        REWOUND: "OffsetsReset",
        RESET: "OffsetsReset",
        JUMPED: "OffsetsReset",
        GARBLED: "MetadataUnreadable",
        FOREIGN: "MetadataUnreadable",
    }
    pipeline.wait("the tampered streams stopped", lambda: stops(pipeline) == reasons)
    untouched = [CONTROL, TOO_FAR, ON_PURPOSE]
    pipeline.wait(
        "the others to continue",
        lambda: all(
            aggregator.position(pipeline.stream("a", p)) > feed.offsets(table, ("a", p))[-1] for p in untouched
        ),
    )
    for partition, reason in reasons.items():
        name = pipeline.stream("a", partition)
        assert aggregator.metric("blockhouse_stream_stopped", stream=name, reason=reason) == 1
        assert group.committed()[partition] == tampered[partition], "overwritten"
        assert aggregator.logged("stream.stopped", stream=name, reason=reason)

    listed = CliRunner().invoke(streams_command, ["list", "--config", str(aggregator.folder / "aggregator.yaml")])
    assert listed.output.count("OffsetsReset: ") == 3
    assert listed.output.count("MetadataUnreadable: ") == 2

    # Nothing was in flight, so the position before is exactly where to continue.
    printed = accept(pipeline, REWOUND, reasons[REWOUND], "--from", str(before[REWOUND][0]))
    assert "add --yes" in printed
    assert stops(pipeline) == reasons
    for partition, reason in reasons.items():
        accept(pipeline, partition, reason, "--from", str(before[partition][0]), "--yes")
    pipeline.settle(table)
    assert stops(pipeline) == {}
    assert "StreamRestarted" in alarms(pipeline, REWOUND)


def test_messages_that_retention_took_unread_are_reported_and_the_stream_continues(pipeline: Loading) -> None:
    feed, group = pipeline.feed, Group(pipeline.pipeline)
    table = feed.table("expired")
    the_aggregator(pipeline).stop(grace=20)
    feed.send(table, MESSAGES)
    lost = feed.offsets(table, ("a", CONTROL))[:4]
    group.cut(CONTROL, lost[-1] + 1)
    feed.forget(table, [("a", CONTROL, offset) for offset in lost])
    the_aggregator(pipeline).start()
    pipeline.settle(table)
    assert alarms(pipeline, CONTROL) == ["MessagesExpired"]
    name = pipeline.stream("a", CONTROL)
    assert the_aggregator(pipeline).metric("blockhouse_holes_total", stream=name) == len(lost)


def test_a_block_in_flight_that_retention_took_is_decided_by_provenance_alone(pipeline: Loading) -> None:
    """Stored: acknowledged. Not stored: it cannot be rebuilt, and is never inserted in part: blocked, loudly."""
    feed, group, aggregator = pipeline.feed, Group(pipeline.pipeline), the_aggregator(pipeline)
    stored, absent = feed.table("cut_stored"), feed.table("cut_absent")
    locks = TableLocks(feed.zookeeper, "01", holder="test")
    lock = locks.acquire(absent, 10)
    assert lock is not None
    with pipeline.fetches_stopped(stored):
        feed.send(stored, 5, to=[("a", CONTROL)])
        feed.send(absent, 5, to=[("a", REWOUND)])
        pipeline.wait("both in flight", lambda: all(aggregator.in_flight(t, "inserting") for t in (stored, absent)))
        pipeline.wait("one of them written", lambda: pipeline.written_without_quorum(stored))
        aggregator.kill()
    locks.release(lock)
    for table, partition in ((stored, CONTROL), (absent, REWOUND)):
        group.cut(partition, feed.offsets(table, ("a", partition))[2])
    aggregator.start()
    pipeline.wait("the absent one blocked", lambda: bool(aggregator.in_flight(absent, "blocked")))
    pipeline.wait("the stored one acknowledged", lambda: aggregator.counter("by_provenance") == 1)
    (block,) = aggregator.in_flight(absent, "blocked")
    assert block.reason == "ReplayRangeExpired"
    assert "ReplayRangeExpired" in alarms(pipeline, REWOUND)
    assert aggregator.metric("blockhouse_table_blocked", table=absent, reason="ReplayRangeExpired") == 1
    feed.send(stored, 5)
    feed.wait_exact(stored)
    feed.forget(absent, [("a", REWOUND, offset) for offset in feed.offsets(absent, ("a", REWOUND))])
    assert feed.differences(absent) == []  # nothing of it was inserted in part
    # The operator gives the block up.
    position = aggregator.position(pipeline.stream("a", REWOUND))
    aggregator.kill()
    group.commit(REWOUND, position, "")
    aggregator.start()
    pipeline.wait("the stream stopped", lambda: stops(pipeline) == {REWOUND: "OffsetsReset"})
    accept(pipeline, REWOUND, "OffsetsReset", "--from", str(position), "--yes")
    feed.send(absent, 5)
    pipeline.settle(absent, stored)


def test_expired_group_offsets_do_not_look_like_a_new_stream(pipeline: Loading) -> None:
    feed, group, aggregator = pipeline.feed, Group(pipeline.pipeline), the_aggregator(pipeline)
    table = feed.table("offsets_expired")
    feed.send(table, 3)
    pipeline.settle(table)
    aggregator.stop(grace=20)
    before = group.committed()
    group.delete()
    feed.send(table, 3)
    aggregator.start()
    pipeline.wait("every stream stopped", lambda: stops(pipeline) == dict.fromkeys(range(8), "OffsetsExpired"))
    for partition in range(8):
        accept(pipeline, partition, "OffsetsExpired", "--from", str(before[partition][0]), "--yes")
    pipeline.settle(table)


def test_a_compacted_topic_is_refused_and_cannot_be_accepted(pipeline: Loading) -> None:
    feed, group, aggregator = pipeline.feed, Group(pipeline.pipeline), the_aggregator(pipeline)
    table = feed.table("compacted")
    aggregator.stop(grace=20)
    group.set_topic("cleanup.policy", "compact,delete")
    aggregator.start()
    pipeline.wait("every stream stopped", lambda: stops(pipeline) == dict.fromkeys(range(8), "CompactedTopic"))
    config = str(aggregator.folder / "aggregator.yaml")
    arguments = ["accept", pipeline.stream("a", CONTROL), "CompactedTopic", "--config", config, "--yes"]
    assert CliRunner().invoke(streams_command, arguments).exit_code == 2
    group.set_topic("cleanup.policy", "delete")  # its cause removed, it continues by itself
    pipeline.wait("every stream continues", lambda: not stops(pipeline))  # so the broker takes messages without a key
    feed.send(table, 3)
    pipeline.settle(table)


def test_a_topic_that_was_deleted_and_created_again_is_never_mixed_with_the_former(pipeline: Loading) -> None:
    feed, group, aggregator = pipeline.feed, Group(pipeline.pipeline), the_aggregator(pipeline)
    aggregator.stop(grace=20)
    group.admin.delete_topics([group.topic])[group.topic].result(60)
    assert eventually(lambda: group.topic not in group.admin.list_topics(timeout=60).topics)
    pipeline.pipeline.create_topic()
    aggregator.start()
    # Deleting a topic deletes its offsets too: both show that this is not the stream that was started.
    pipeline.wait("every stream stopped", lambda: stops(pipeline) == dict.fromkeys(range(8), "TopicRecreated"))
    table = feed.table("recreated")
    for partition in range(8):
        accept(pipeline, partition, "TopicRecreated", "--yes")
    feed.send(table, MESSAGES)
    pipeline.settle(table)
