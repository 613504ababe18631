"""A dead letter that its topic does not take, for whatever reason: its stream waits before the message, with an alarm
that names the cause, its neighbours flow, and it continues by itself when the topic takes it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from random import Random

import pytest
from confluent_kafka.admin import AclOperation, AdminClient, ResourceType
from confluent_kafka.cimpl import NewTopic

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.dead_letters import DeadLetter, DeadLetterWriter
from e2e.pipeline import AggregatorProcess
from e2e.stack import Stack, StackSpec
from e2e.stack.kafka import KafkaClusterServers
from e2e.stack.process import wait_until
from tests.integration.runtime_pipeline import Loading, healed, loading, neighbour_flows
from tests.integration.test_bug_reports import STREAM
from tests.integration.test_reassignment_forbidden import AUTHORIZED, CLUSTER, denied, quota
from tests.integration.test_runtime_poison import reasons

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(400)]

USER, PASSWORD = "aggregator", "not-secret"
REFUSED = "DeadLetterRefused"
BAD = b"\x0a\xff"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    """Two brokers, of which the second may die, with an authorizer; the aggregator logs in, nothing else does."""
    folder = tmp_path_factory.mktemp("refused")
    (folder / "password").write_text(PASSWORD)
    spec = StackSpec(kafka_clusters=1, brokers=2, replicas=1, kafka_scram={USER: PASSWORD}, kafka_properties=AUTHORIZED)
    with Stack(folder / "stack", spec) as stack:
        login = {"mechanism": "SCRAM-SHA-256", "username": USER, "password": {"file": str(folder / "password")}}
        cluster = {"name": "a", "bootstrapServers": stack.kafka["a"].sasl_bootstrap, "sasl": login}
        settings = {"kafka": {"clusters": [cluster]}, "quorum": {"replicas": 1}}
        with loading(stack, folder, "refused", settings=settings) as found:
            yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed(running) as found:
        yield found


def kafka_of(pipeline: Loading) -> KafkaClusterServers:
    return pipeline.stack.kafka[STREAM[0]]


def letters_topic(pipeline: Loading) -> str:
    return f"{pipeline.pipeline.spec.topic}.dead-letters"


def only(pipeline: Loading) -> AggregatorProcess:
    (aggregator,) = pipeline.aggregators
    return aggregator


def letters_gone(pipeline: Loading) -> None:
    """Delete the dead-letter topic, if there is one; returns when no broker knows it."""
    admin = AdminClient({"bootstrap.servers": kafka_of(pipeline).bootstrap, "log_level": 0})
    topic = letters_topic(pipeline)
    if topic in admin.list_topics(timeout=60).topics:
        admin.delete_topics([topic], operation_timeout=60)[topic].result(60)
    for broker in kafka_of(pipeline).brokers:
        asked = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        assert wait_until(lambda asked=asked: topic not in asked.list_topics(timeout=60).topics, timeout=60)


def refused_letter(pipeline: Loading, table: str, cause: str) -> int:
    """Send a bad message whose letter is refused: the alarm names the cause, the status shows it, the stream is not
    taken over again for it and the neighbour flows. Returns its offset."""
    aggregator, stream = only(pipeline), pipeline.stream(*STREAM)
    _, headers = pipeline.feed.encode(table, [{"id": 1}])
    taken_over = len(aggregator.logged("stream.taken_over", stream=stream))
    before = len(aggregator.logged("alarm", stream=stream, reason=REFUSED))
    offset = pipeline.feed.raw(BAD, headers, to=STREAM)
    neighbour_flows(pipeline, table)

    def alarms() -> list[str]:
        return [line["message"] for line in aggregator.logged("alarm", stream=stream, reason=REFUSED)[before:]]

    pipeline.wait("the alarm", lambda: bool(alarms()))
    assert cause in alarms()[0]
    pipeline.wait("the status to name it", lambda: standing(pipeline) == REFUSED)
    neighbour_flows(pipeline, table)
    assert len(aggregator.logged("stream.taken_over", stream=stream)) == taken_over
    assert aggregator.position(stream) <= offset
    return offset


def standing(pipeline: Loading) -> str:
    status = only(pipeline).stream(pipeline.stream(*STREAM))
    return status.standing.reason if status is not None and status.standing is not None else ""


def resumed(pipeline: Loading, table: str, offset: int) -> None:
    """The stream has continued by itself, with the letter and everything behind it."""
    pipeline.settle(table)
    assert reasons(pipeline)[f"{pipeline.stream(*STREAM)}/{offset}"] == b"Undecodable"
    pipeline.wait("the status to be right again", lambda: standing(pipeline) == "")


@pytest.mark.parametrize(
    ("operation", "cause"),
    [
        (AclOperation.CREATE, "creating topic refused-events.dead-letters"),
        (AclOperation.WRITE, "writing 1 dead letters to refused-events.dead-letters"),
        (AclOperation.DESCRIBE, "describing topic refused-events.dead-letters"),
    ],
)
def test_a_right_that_the_user_lacks_is_named_and_letters_are_written_once_it_is_granted(
    pipeline: Loading, operation: AclOperation, cause: str
) -> None:
    table = pipeline.feed.table(f"forbidden_{operation.name.lower()}")
    pipeline.feed.send(table, 3)
    pipeline.settle(table)
    letters_gone(pipeline)
    with contextlib.ExitStack() as rules:
        kafka, topic = kafka_of(pipeline), letters_topic(pipeline)
        rules.enter_context(denied(kafka, ResourceType.TOPIC, topic, operation, user=USER))
        if operation is AclOperation.CREATE:  # a right to create any topic would do
            rules.enter_context(denied(kafka, ResourceType.BROKER, CLUSTER, operation, user=USER))
        offset = refused_letter(pipeline, table, cause)
        alarm = only(pipeline).logged("alarm", reason=REFUSED)[-1]["message"]
        assert "TOPIC_AUTHORIZATION_FAILED" in alarm
        assert "grant the user access to the topic" in alarm
        pipeline.feed.send(table, 3)
    resumed(pipeline, table, offset)


def test_a_right_that_only_creating_the_topic_needs_is_not_asked_for_while_it_exists(pipeline: Loading) -> None:
    table = pipeline.feed.table("undescribed")
    _, headers = pipeline.feed.encode(table, [{"id": 1}])
    first = pipeline.feed.raw(BAD, headers, to=STREAM)
    resumed(pipeline, table, first)
    topic = letters_topic(pipeline)
    only(pipeline).restart()  # whose first letter asks whether there is a topic
    with denied(kafka_of(pipeline), ResourceType.TOPIC, topic, AclOperation.DESCRIBE_CONFIGS, user=USER):
        second = pipeline.feed.raw(BAD, headers, to=STREAM)
        resumed(pipeline, table, second)


def test_a_topic_with_no_room_for_a_letter_without_its_message_is_named(pipeline: Loading) -> None:
    table = pipeline.feed.table("roomless")
    _, headers = pipeline.feed.encode(table, [{"id": 1}])
    resumed(pipeline, table, pipeline.feed.raw(BAD, headers, to=STREAM))  # now there is a topic
    pipeline.set_topic_config(letters_topic(pipeline), {"max.message.bytes": "60"})
    offset = refused_letter(pipeline, table, "even without the message: raise max.message.bytes of the topic")
    pipeline.feed.send(table, 3)
    pipeline.set_topic_config(letters_topic(pipeline), {"max.message.bytes": "1000000"})
    resumed(pipeline, table, offset)


LACKING = pytest.mark.parametrize(
    ("replicas", "settings", "cause"),
    [([2], {}, "has no leader"), ([1, 2], {"min.insync.replicas": "2"}, "has 1 in-sync replicas of 2 it needs")],
    ids=["no-leader", "too-few-replicas"],
)
"""Topics that take no letter while the second broker is dead, and what the alarm names."""


@LACKING
def test_a_stream_waits_while_the_topic_of_its_letters_lacks_brokers_and_continues_when_they_are_back(
    pipeline: Loading, replicas: list[int], settings: dict[str, str], cause: str
) -> None:
    """The stream itself is led by the broker that is left."""
    table = pipeline.feed.table(f"lacking_{len(replicas)}")
    letters_gone(pipeline)
    kafka, topic = kafka_of(pipeline), letters_topic(pipeline)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    new = NewTopic(topic, num_partitions=1, replica_assignment=[replicas], config=settings)
    admin.create_topics([new], operation_timeout=60)[topic].result(60)
    kafka.brokers[1].kill()
    pipeline.feed.send(table, 3)
    pipeline.settle(table)
    offset = refused_letter(pipeline, table, f"{topic}/0 {cause}")
    pipeline.feed.send(table, 3)
    kafka.brokers[1].start()
    resumed(pipeline, table, offset)


@LACKING
def test_what_brokers_lack_to_take_a_letter_is_named_and_it_is_written_once_they_are_back(
    pipeline: Loading, replicas: list[int], settings: dict[str, str], cause: str
) -> None:
    kafka, topic = kafka_of(pipeline), f"letters-of-{len(replicas)}"
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    new = NewTopic(topic, num_partitions=1, replica_assignment=[replicas], config=settings)
    admin.create_topics([new], operation_timeout=60)[topic].result(60)
    writer = DeadLetterWriter(KafkaCluster(name="a", bootstrap_servers=kafka.bootstrap), topic, timeout=4)
    letter = DeadLetter(StreamId("a", "events", 0), 7, None, b"value", (), 1_700_000_000_000, "Undecodable")
    assert wait_until(lambda: written(writer, letter), timeout=60, interval=0)
    kafka.brokers[1].kill()
    refusals: list[str] = []
    assert wait_until(lambda: not written(writer, letter, refusals) and cause in refusals[-1], timeout=60, interval=0)
    assert f"1 not acknowledged in 4 s: {topic}/0 {cause}" in refusals[-1]
    kafka.brokers[1].start()
    assert wait_until(lambda: written(writer, letter), timeout=60, interval=0)


def written(writer: DeadLetterWriter, letter: DeadLetter, refusals: list[str] | None = None) -> bool:
    try:
        writer.write([letter])
    except Retryable as error:
        if refusals is not None:
            refusals.append(str(error))
        return False
    return True


def test_a_quota_delays_letters_and_costs_none(pipeline: Loading) -> None:
    """The broker takes what exceeds the quota and answers later: no letter is lost, no alarm is needed."""
    table = pipeline.feed.table("slow_letters")
    _, headers = pipeline.feed.encode(table, [{"id": 1}])
    noise, stream = Random(3), pipeline.stream(*STREAM)
    with quota(kafka_of(pipeline), "producer_byte_rate=3000", user=USER):
        offsets = [pipeline.feed.raw(BAD + noise.randbytes(1000), headers, to=STREAM) for _ in range(20)]
        neighbour_flows(pipeline, table)
        pipeline.feed.send(table, 3)
        pipeline.settle(table)
    assert {f"{stream}/{offset}" for offset in offsets} <= reasons(pipeline).keys()
