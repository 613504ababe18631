"""The world changes under a running aggregator: another topic under the old name, a log that is not what was read,
offsets that go back. Nothing is lost or doubled: the stream stops by name, before anything wrong is committed.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import StreamMarkers
from e2e.pipeline import AggregatorProcess
from e2e.stack import Stack
from e2e.stack.process import wait_until
from tests.integration.conftest import Names
from tests.integration.runtime_group import Group
from tests.integration.runtime_pipeline import Loading, loading
from tests.integration.test_kafka_epochs import cut, segment_of
from tests.integration.test_runtime_abnormal import accept, stops

pytestmark = [pytest.mark.integration, pytest.mark.long]


@pytest.fixture
def pipeline(stack: Stack, names: Names, tmp_path: Path) -> Iterator[Loading]:
    name = names.stem.replace("_", "-")[-24:].strip("-")
    with loading(stack, tmp_path, name, partitions=1, aggregators=1, clusters=1) as found:
        yield found


def the_aggregator(pipeline: Loading) -> AggregatorProcess:
    (aggregator,) = pipeline.aggregators
    return aggregator


def recreate(pipeline: Loading) -> None:
    """Delete the topic and create it again under its name."""
    kafka, topic = pipeline.stack.kafka["a"], pipeline.pipeline.spec.topic
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    admin.delete_topics([topic])[topic].result(60)
    assert wait_until(lambda: topic not in admin.list_topics(timeout=5).topics, timeout=60)
    kafka.create_topic(topic, partitions=1)


def test_a_topic_that_is_created_again_under_a_running_aggregator(pipeline: Loading, names: Names) -> None:
    feed, group = pipeline.feed, Group(pipeline.pipeline)
    before, after = feed.table(f"{names.table}_before"), feed.table(f"{names.table}_after")
    feed.send(before, 20)
    pipeline.settle(before)
    committed = group.committed()[0]

    recreate(pipeline)
    feed.send(after, 60)

    pipeline.wait("the stream stopped", lambda: stops(pipeline) == {0: "TopicRecreated"}, timeout=30)
    assert group.committed().get(0, committed)[1] in (committed[1], ""), "nothing was committed over it"
    assert feed.differences(before) == []
    accept(pipeline, 0, "TopicRecreated", "--yes")
    pipeline.settle(after)
    assert feed.differences(before, after) == []


def test_an_idle_stream_notices_it_too(pipeline: Loading, names: Names) -> None:
    table = pipeline.feed.table(names.table)
    pipeline.feed.send(table, 5)
    pipeline.settle(table)

    recreate(pipeline)

    pipeline.wait("the stream stopped", lambda: stops(pipeline) == {0: "TopicRecreated"}, timeout=30)


def test_a_log_that_was_cut_and_written_again(stack: Stack, pipeline: Loading, names: Names) -> None:
    """Of 90 messages that are loaded the broker loses 30 with its page cache; 60 others take their place, and more."""
    feed, group = pipeline.feed, Group(pipeline.pipeline)
    before, after = feed.table(f"{names.table}_before"), feed.table(f"{names.table}_after")
    stream = StreamId("a", pipeline.pipeline.spec.topic, 0)
    feed.send(before, 60)
    size = segment_of(stack, stream).stat().st_size
    feed.send(before, 30)
    pipeline.settle(before)
    pipeline.wait("everything recorded as stored", lambda: group.committed()[0][0] == 90)

    cut(stack, stream, size)
    feed.begin_again()
    feed.send(after, 60)

    pipeline.wait("the stream stopped", lambda: stops(pipeline) == {0: "LogTruncated"}, timeout=60)
    assert group.committed()[0][0] == 90, "nothing was committed over it"
    shown = accept(pipeline, 0, "LogTruncated", "--from", "60", "--yes")
    assert f"ALTER TABLE {before} DELETE WHERE _kafka_cluster = 'a'" in shown.replace("`", "")
    assert "-- 90 rows" in shown, "three rows of each of the messages that are gone"
    pipeline.settle(after)
    assert feed.differences(before, after) == []


def test_an_election_alone_stops_nothing(stack: Stack, pipeline: Loading, names: Names) -> None:
    table = pipeline.feed.table(names.table)
    pipeline.feed.send(table, 10)
    pipeline.settle(table)
    (broker,) = stack.kafka["a"].brokers
    for _ in range(2):
        broker.kill()
        broker.start()
        pipeline.feed.send(table, 10)
        pipeline.settle(table)
    the_aggregator(pipeline).kill()
    the_aggregator(pipeline).start()
    pipeline.feed.send(table, 10)
    pipeline.settle(table)
    assert stops(pipeline) == {}


def test_an_offset_that_goes_back_with_its_metadata(pipeline: Loading, names: Names) -> None:
    """As a restored disk of the brokers, or a tool that commits an old pair: nothing in the pair is wrong in itself."""
    feed, group, aggregator = pipeline.feed, Group(pipeline.pipeline), the_aggregator(pipeline)
    table = feed.table(names.table)
    feed.send(table, 30)
    pipeline.settle(table)
    pipeline.wait("everything recorded as stored", lambda: group.committed()[0][0] == 30)
    old = group.committed()[0]
    feed.send(table, 30)
    pipeline.settle(table)
    aggregator.stop(grace=20)
    newest = group.committed()[0]
    group.commit(0, *old)

    aggregator.start()

    pipeline.wait("the stream stopped", lambda: stops(pipeline) == {0: "OffsetsWentBack"}, timeout=60)
    assert feed.differences(table) == []
    accept(pipeline, 0, "OffsetsWentBack", "--from", str(newest[0]), "--yes")
    feed.send(table, 10)
    pipeline.settle(table)
    assert stops(pipeline) == {}
    aggregator.kill()
    aggregator.start()  # the marker has begun again as well
    feed.send(table, 10)
    pipeline.settle(table)


def test_a_marker_that_is_gone(pipeline: Loading, names: Names) -> None:
    feed, group, aggregator = pipeline.feed, Group(pipeline.pipeline), the_aggregator(pipeline)
    table = feed.table(names.table)
    feed.send(table, 30)
    pipeline.settle(table)
    pipeline.wait("everything recorded as stored", lambda: group.committed()[0][0] == 30)
    aggregator.stop(grace=20)
    stream = StreamId("a", pipeline.pipeline.spec.topic, 0)
    session = feed.zookeeper
    assert session.znodes.delete(session.path("streams", "a", stream.topic, "0"))
    feed.send(table, 10)

    aggregator.start()

    pipeline.wait("the stream stopped", lambda: stops(pipeline) == {0: "MarkerMissing"}, timeout=60)
    output = accept(pipeline, 0, "MarkerMissing", "--yes")
    assert "It would continue from offset" in output
    pipeline.settle(table)
    assert stops(pipeline) == {}
    marker = StreamMarkers(session).get(stream)
    assert marker is not None
    assert marker.position >= 30


def test_a_schema_history_that_is_set_up_again(pipeline: Loading, names: Names) -> None:
    """The aggregator is gone; another process sets the subtree up again, with the tables in another order."""
    feed, group, aggregator = pipeline.feed, Group(pipeline.pipeline), the_aggregator(pipeline)
    one, other = feed.table(f"{names.table}_one"), feed.table(f"{names.table}_other")
    feed.send(one, 9)
    feed.send(other, 9)
    pipeline.settle(one, other)
    aggregator.stop(grace=20)
    committed = group.committed()[0]
    session = feed.zookeeper
    session.client.delete(session.path("schema"), recursive=True)
    for name in (f"{names.table}_other", f"{names.table}_one"):
        feed.record(name)

    aggregator.start()

    pipeline.wait("the stream stopped", lambda: stops(pipeline) == {0: "SchemaHistoryReplaced"}, timeout=60)
    assert group.committed()[0] == committed
    assert feed.differences(one, other) == []
