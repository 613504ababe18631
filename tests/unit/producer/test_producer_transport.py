"""Messages reach the first cluster that takes them, and every one is accounted for. Brokers are librdkafka's mocks."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import Producer as Client

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.producer import Delivery, DeliveryFailed, Producer, Transport
from blockhouse.schema.model import Column, Revision, TableHistory

NOWHERE = KafkaCluster(name="away", bootstrap_servers="127.0.0.1:1")
HEADERS = {"table": "db.t"}


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaCluster]:
    """A cluster that answers; it lives as long as the client that pretends to be it."""
    owner = Client({"test.mock.num.brokers": 1, "bootstrap.servers": "mock", "log_level": 0})
    found = next(iter(owner.list_topics(timeout=10).brokers.values()))
    yield KafkaCluster(name="here", bootstrap_servers=f"{found.host}:{found.port}")
    owner.flush(0)


def transport(*clusters: KafkaCluster, reports: list[Delivery], timeout: float = 20, **settings: object) -> Transport:
    """`timeout` is short only where a cluster never answers: one that does may take its time on a busy machine."""
    return Transport(clusters, "t", delivery_timeout=timeout, on_delivery=reports.append, settings=settings)


def test_a_delivery_names_where_the_message_is(broker: KafkaCluster) -> None:
    reports: list[Delivery] = []
    sending = transport(broker, reports=reports)

    for tag in range(3):
        sending.send(b"x", HEADERS, partition=2, tag=tag)
    sending.flush()

    assert [(d.cluster, d.topic, d.partition, d.tag, d.error) for d in reports] == [
        ("here", "t", 2, tag, None) for tag in range(3)
    ]
    assert [d.offset - reports[0].offset for d in reports] == [0, 1, 2]


def test_the_next_cluster_takes_what_the_local_one_cannot(broker: KafkaCluster) -> None:
    reports: list[Delivery] = []
    sending = transport(NOWHERE, broker, reports=reports, timeout=5)

    sending.send(b"x", HEADERS, tag=1)
    sending.flush()

    assert [(d.cluster, d.tag, d.error) for d in reports] == [("here", 1, None)]
    assert sending.reachable == {"away": False, "here": True}


def test_a_topic_that_no_cluster_has_is_refused_before_anything_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    lacking = Looks(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    sending = looked_up(monkeypatch, lacking, lacking)

    with pytest.raises(Permanent, match="no topic t in Kafka cluster here, there: correct `topic`, or create it"):
        sending.require_topic(patience=0.2)
    assert lacking.looks > 2, "a topic that was just created is not known at once"


@pytest.mark.parametrize(
    "answer",
    [None, KafkaError(KafkaError.LEADER_NOT_AVAILABLE), KafkaException(KafkaError(KafkaError._TRANSPORT))],
    ids=["has it", "is electing", "silent"],
)
def test_a_topic_that_any_cluster_may_have_is_not_refused(monkeypatch: pytest.MonkeyPatch, answer: Any) -> None:
    looked_up(monkeypatch, Looks(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART)), Looks(answer)).require_topic(0.2)


def test_a_producer_looks_for_its_topic_before_its_first_message(monkeypatch: pytest.MonkeyPatch) -> None:
    client = Looks(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
    monkeypatch.setattr("blockhouse.producer.transport.Client", lambda settings: client)
    producer = Producer([NOWHERE], Schemas(), "away", topic="ordrs")

    with pytest.raises(Permanent, match="no topic ordrs in Kafka cluster away"):
        producer.send("db.t", [{"a": 1}])


class Looks:
    """A client that answers whether it has the topic."""

    def __init__(self, answer: Any) -> None:
        self._answer, self.looks = answer, 0

    def list_topics(self, topic: str, timeout: float) -> Any:
        self.looks += 1
        if isinstance(self._answer, KafkaException):
            raise self._answer
        return SimpleNamespace(topics={topic: SimpleNamespace(error=self._answer)})


def looked_up(monkeypatch: pytest.MonkeyPatch, *clients: Looks) -> Transport:
    found = iter(clients)
    monkeypatch.setattr("blockhouse.producer.transport.Client", lambda settings: next(found))
    names = ("here", "there")
    return Transport([KafkaCluster(name=name, bootstrap_servers="x:1") for name in names], "t")


def test_a_message_no_cluster_takes_is_reported_once() -> None:
    reports: list[Delivery] = []
    sending = transport(NOWHERE, NOWHERE.model_copy(update={"name": "gone"}), reports=reports, timeout=1)

    sending.send(b"x", HEADERS, tag=1)
    with pytest.raises(DeliveryFailed, match="1 messages were not delivered"):
        sending.flush()

    (report,) = reports
    assert (report.tag, report.offset) == (1, -1)
    assert isinstance(report.error, Retryable)
    sending.flush()  # reported once, it is not reported again


def test_flush_does_not_wait_indefinitely() -> None:
    sending = Transport([NOWHERE], "t", delivery_timeout=60)
    sending.send(b"x", HEADERS)

    with pytest.raises(Retryable, match=r"1 messages for topic t wait for delivery after 0\.1 s"):
        sending.flush(0.1)


def test_a_full_queue_makes_the_sender_wait_and_loses_nothing(broker: KafkaCluster) -> None:
    reports: list[Delivery] = []
    sending = transport(broker, reports=reports, **{"queue.buffering.max.messages": 10})

    for tag in range(200):
        sending.send(b"x", HEADERS, tag=tag)
    sending.flush()

    assert {d.tag for d in reports} == set(range(200))


def test_a_message_that_is_too_large_is_refused(broker: KafkaCluster) -> None:
    sending = transport(broker, reports=[])

    with pytest.raises(Permanent, match="here: sending to topic t failed"):
        sending.send(bytes(2_000_000), HEADERS)


class Schemas:
    """A schema source whose table gets a column when `grow` is called."""

    def __init__(self) -> None:
        self.revisions = [Revision(number=1, columns=(Column(name="a", type="Int8", field=1),))]

    def grow(self) -> None:
        (first,) = self.revisions
        self.revisions.append(Revision(number=2, columns=(*first.columns, Column(name="b", type="Int8", field=2))))

    def get(self, name: str) -> TableHistory | None:
        return TableHistory(id=1, name=name, revisions=tuple(self.revisions)) if name == "db.t" else None


def test_a_producer_learns_of_a_column_when_a_row_has_it(broker: KafkaCluster) -> None:
    schemas = Schemas()
    reports: list[Delivery] = []
    producer = Producer([broker], schemas, "here", topic="t", on_delivery=reports.append)
    producer.send("db.t", [{"a": 1}])
    with pytest.raises(Permanent, match="no column 'b'"):
        producer.send("db.t", [{"b": 1}])

    schemas.grow()
    producer.send("db.t", [{"b": 1}])
    producer.flush()

    assert len(reports) == 2


@pytest.mark.parametrize("table", ["t", "db.other"])
def test_a_table_without_a_schema_is_refused(broker: KafkaCluster, table: str) -> None:
    producer = Producer([broker], Schemas(), "here", topic="t")

    with pytest.raises(Permanent, match=f"table {table} has no schema"):
        producer.send(table, [{"a": 1}])


def test_the_local_cluster_must_be_one_of_them(broker: KafkaCluster) -> None:
    with pytest.raises(ValueError, match="no Kafka cluster 'b': there are here"):
        Producer([broker], Schemas(), "b", topic="t")
