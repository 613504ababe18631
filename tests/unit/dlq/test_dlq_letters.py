"""What the records of a dead-letter topic mean."""

from __future__ import annotations

from blockhouse.streams import StreamId
from blockhouse_aggregator.dlq.letters import (
    ORIGIN,
    Collection,
    Headers,
    Letter,
    Mark,
    Record,
    Selection,
    headers_again,
    parse,
)
from blockhouse_aggregator.kafka.dead_letters import REPLAYED, DeadLetter

STREAM = StreamId("a", "events", 3)
OWN: Headers = (("table", b"db.t"), ("blockhouse.table", b"the producer's own"), ("table", b"twice"))


def written(
    offset: int,
    *,
    key: bytes | None = b"k",
    value: bytes | None = b"v",
    reason: str = "OutOfRange",
    own: Headers = OWN,
    topic_id: str = "",
) -> Record:
    """The record as the aggregator writes it."""
    letter = DeadLetter(STREAM, offset, key, value, own, 1_700_000_000_000, reason, "db.t", topic_id=topic_id)
    headers = tuple((name, h.encode() if isinstance(h, str) else h) for name, h in letter.record_headers())
    return Record(letter.record_key.encode(), value, headers, timestamp_ms=1)


def mark(offset: int) -> Record:
    return Record(f"{STREAM}/{offset}".encode(), None, ((REPLAYED, b"a/events/3/99"),), 0)


def found(records: list[Record], selection: Selection | None = None, *, values: bool = True) -> list[Letter]:
    collection = Collection(selection or Selection(), values)
    collection.add(records)
    return collection.result()


def test_a_letter_gives_back_exactly_what_the_producer_sent() -> None:
    for key, value in ((b"k", b"v"), (None, b""), (b"", None)):
        letter = parse(written(7, key=key, value=value))
        assert isinstance(letter, Letter)
        assert (letter.message_key, letter.value, letter.headers) == (key, value, OWN)
        assert (letter.key, letter.stream, letter.offset) == ("a/events/3/7", STREAM, 7)
        assert (letter.reason, letter.table, letter.replayed) == ("OutOfRange", "db.t", "")
        assert letter.timestamp_ms == 1_700_000_000_000


def test_records_of_others_are_no_letters() -> None:
    assert parse(Record(None, b"x", (), 0)) is None
    assert parse(Record(b"k", b"x", (("blockhouse.stream", b"nonsense"), ("blockhouse.offset", b"1")), 0)) is None
    assert parse(Record(b"k", b"x", (("blockhouse.stream", b"a/t/0"), ("blockhouse.offset", b"one")), 0)) is None


def test_copies_count_as_one_letter() -> None:
    (letter,) = found([written(7), written(7), written(7)])
    assert letter.copies == 3


def test_a_letter_that_was_sent_again_is_left_out_wherever_its_mark_is() -> None:
    records = [mark(8), written(7), written(8), mark(7), written(7), written(9)]
    assert [letter.offset for letter in found(records)] == [9]
    everything = found(records, Selection(replayed=True))
    assert [(letter.offset, letter.replayed) for letter in everything] == [
        (7, "a/events/3/99"),
        (8, "a/events/3/99"),
        (9, ""),
    ]
    assert parse(mark(7)) == Mark("a/events/3/7", "a/events/3/99")


def test_letters_are_chosen_by_key_stream_table_and_reason() -> None:
    records = [written(1), written(2, reason="UnknownTable"), written(3)]
    chosen = {
        "keys": Selection(keys=frozenset({"a/events/3/2"})),
        "reason": Selection(reason="UnknownTable"),
        "none": Selection(table="db.other"),
        "other stream": Selection(stream="a/events/4"),
    }
    offsets = {name: [letter.offset for letter in found(records, each)] for name, each in chosen.items()}
    assert offsets == {"keys": [2], "reason": [2], "none": [], "other stream": []}
    assert not Selection(replayed=True).named


def test_a_list_does_without_values_but_shows_their_size() -> None:
    (letter,) = found([written(7, value=b"12345")], values=False)
    assert (letter.value, letter.size) == (None, 5)


def test_a_message_that_is_sent_again_names_its_first_origin() -> None:
    first = parse(written(7))
    assert isinstance(first, Letter)
    assert headers_again(first) == (*OWN, (ORIGIN, b"a/events/3/7"))
    failed_again = parse(written(30, own=headers_again(first)))
    assert isinstance(failed_again, Letter)
    assert headers_again(failed_again) == (*OWN, (ORIGIN, b"a/events/3/7"))


def test_letters_of_a_topic_and_of_the_one_created_again_under_its_name_are_two() -> None:
    records = [written(7, value=b"old", topic_id="T1"), written(7, value=b"new", topic_id="T2"), mark(7)]
    letters = {letter.key: letter.value for letter in found(records)}
    assert letters == {"a/events/3/7@T1": b"old", "a/events/3/7@T2": b"new"}, "a mark of neither marks neither"
    assert [letter.key for letter in found(records, Selection(keys=frozenset({"a/events/3/7@T2"})))] == [
        "a/events/3/7@T2"
    ]
    assert len(found(records, Selection(keys=frozenset({"a/events/3/7"})))) == 2
    assert [record.key for record in records[:2]] == [b"a/events/3/7@T1", b"a/events/3/7@T2"]
    (letter,) = found([written(7, topic_id="T1")])
    assert (letter.headers, letter.topic_id, letter.place) == (OWN, "T1", "a/events/3/7")
