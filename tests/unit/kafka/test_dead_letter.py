"""A dead letter gets smaller step by step, and names what it lacks."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.dlq import letters
from blockhouse_aggregator.dlq.letters import Letter, Record, parse
from blockhouse_aggregator.kafka import dead_letters as module
from blockhouse_aggregator.kafka.dead_letters import MOST_DETAIL, DeadLetter, DeadLetterWriter

LETTER = DeadLetter(StreamId("a", "t", 0), 7, b"key", b"v" * 1000, (("table", b"db.t"),), 5, "OutOfRange", "db.t")


def test_the_value_goes_first_then_key_and_headers_then_nothing_is_left() -> None:
    without_value = LETTER.smaller()
    assert without_value is not None
    assert (without_value.value, without_value.key, without_value.omitted) == (None, b"key", "value 1000")
    bare = without_value.smaller()
    assert bare is not None
    assert (bare.key, bare.headers, bare.omitted) == (None, (), "value 1000 key and headers 12")
    assert bare.smaller() is None


def test_what_was_left_out_is_read_back_and_the_message_s_own_headers_stay_its_own() -> None:
    smaller = LETTER.smaller()
    assert smaller is not None
    headers = tuple((name, value if isinstance(value, bytes) else None) for name, value in smaller.record_headers())
    found = parse(Record(smaller.record_key.encode(), smaller.value, headers, 9))
    assert isinstance(found, Letter)
    assert (found.omitted, found.headers, found.value) == ("value 1000", (("table", b"db.t"),), None)


class _NotAllowed:
    def __init__(self, cluster: KafkaCluster, *, timeout: float) -> None:
        pass

    def unwritable(self, topic: str) -> str:
        raise Permanent("user u lacks DescribeConfigs", reason="NotAuthorized")


def test_what_keeps_from_asking_why_a_letter_is_late_is_not_named_as_its_cause(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "ClusterFacts", _NotAllowed)
    cluster = KafkaCluster(name="a", bootstrap_servers="127.0.0.1:1")  # where no broker listens
    with pytest.raises(Retryable) as late:
        DeadLetterWriter(cluster, "letters", timeout=0.1).write([LETTER])
    assert "1 not acknowledged in 0.1 s; the cause is not known, for asking the brokers failed" in str(late.value)
    assert "DescribeConfigs" in str(late.value)


def test_what_was_refused_is_read_back_and_a_producer_s_own_header_of_that_name_stays_its_own() -> None:
    own = (("blockhouse.detail", b"the producer's"),)
    for detail, found in (("column c, row 1: 300", "column c, row 1: 300"), ("", ""), ("x" * 9000, "x" * MOST_DETAIL)):
        letter = replace(LETTER, headers=own, detail=detail)
        headers = tuple((name, value if isinstance(value, bytes) else None) for name, value in letter.record_headers())
        read = parse(Record(letter.record_key.encode(), letter.value, headers, 9))
        assert isinstance(read, Letter)
        assert (read.detail, read.headers) == (found, own)


def test_an_older_version_reads_all_it_knows_of_a_letter(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(letters, "_OURS", letters._OURS - {letters.DETAIL})
    headers = tuple(
        (name, value if isinstance(value, bytes) else None)
        for name, value in replace(LETTER, detail="column c, row 1: 300").record_headers()
    )
    read = parse(Record(LETTER.record_key.encode(), LETTER.value, headers, 9))
    assert isinstance(read, Letter)
    assert (read.reason, read.table, read.stream, read.offset) == ("OutOfRange", "db.t", LETTER.stream, 7)
