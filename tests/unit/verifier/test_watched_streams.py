"""What a cluster's streams make of records: whom they belong to, what is missing between them, what a restart keeps."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse.metadata.model import InFlight, TableEntry, Window
from blockhouse.streams import StreamId
from blockhouse_aggregator.verifier.anomaly import (
    Anomaly,
    CommitCompacted,
    EpochReaches,
    HolesAreThere,
    Kind,
    LogBegins,
)
from blockhouse_aggregator.verifier.checks.standing import Bounds
from blockhouse_aggregator.verifier.memory import anomaly_item, progress_items, recall, stream_item
from blockhouse_aggregator.verifier.streams import ClusterStreams, Record, unmatched
from blockhouse_aggregator.verifier.watched import OTHER_TOPICS, UNKNOWN_VERSIONS, Answer
from tests.unit.verifier.given import FIRST, following, key, record, value

SECOND = following(FIRST)
THIRD = following(SECOND)
FOURTH = following(THIRD)
STREAM = StreamId("a", "t", 0)


def watched(*records: Record, groups: tuple[str, ...] = ("g",)) -> tuple[ClusterStreams, list[Anomaly]]:
    streams = ClusterStreams("a", groups)
    return streams, list(streams.observe(records, 9_000))


def kinds(anomalies: list[Anomaly]) -> list[Kind]:
    return [anomaly.finding.kind for anomaly in anomalies]


def test_a_sound_stream_is_quiet() -> None:
    streams, found = watched(record(4, FIRST), record(5, SECOND), record(6, SECOND), record(7, THIRD))

    assert found == []
    assert streams.counts["commits"] == 4
    assert streams.streams["g", "t", 0].position == 30


def test_only_the_pipelines_groups_and_topics_are_read() -> None:
    bad = record(6, replace(FIRST, seq=9), of=key(group="other"))
    streams = ClusterStreams("a", ["ev*"], ["events-*"])
    records = [record(5, FIRST, of=key(group="other")), bad, record(7, FIRST, of=key(group="ev1", topic="x"))]

    assert list(streams.observe(records, 0)) == []
    assert (len(streams.streams), streams.counts[OTHER_TOPICS]) == (0, 1)


def test_a_number_is_missing_and_no_record_is() -> None:
    _, found = watched(record(4, FIRST), record(5, THIRD))

    assert kinds(found) == [Kind.ORDER]


def test_a_number_is_missing_where_records_are_gone() -> None:
    streams, found = watched(record(4, FIRST), record(6, THIRD))

    assert found == []
    assert streams.counts["unseen"] == 1


def test_more_numbers_are_missing_than_records_are_gone() -> None:
    streams, found = watched(record(4, FIRST), record(6, FOURTH))

    assert kinds(found) == [Kind.ORDER]
    assert streams.counts["unseen"] == 1


def test_records_of_others_in_between_do_not_explain_anything() -> None:
    others = record(5, FIRST, of=key(group="other"))

    _, found = watched(record(4, FIRST), others, record(6, THIRD))

    assert kinds(found) == [Kind.ORDER]


def test_what_is_unknown_or_damaged_is_counted_and_passed_over() -> None:
    unknown = (0, 5, key(), b"\x00\x09" + value(0, "")[2:])
    streams, found = watched(
        record(4, FIRST), unknown, (0, 6, key(), b"\x00"), (0, 7, b"\x00\x01x", b""), (0, 8, None, b"")
    )

    assert found == []
    assert (streams.counts[UNKNOWN_VERSIONS], streams.counts["damaged"]) == (1, 2)


def test_a_tombstone_is_no_anomaly_but_a_fresh_start_after_it_is() -> None:
    streams, found = watched(record(4, FIRST), record(5, SECOND), record(6, None))
    assert found == []
    assert streams.streams["g", "t", 0].forgotten

    again = replace(FIRST, position=0, window=Window(), tables=())

    assert kinds(list(streams.observe([record(7, again)], 0))) == [Kind.RESTART]


def test_a_topic_that_is_created_again_begins_from_its_start() -> None:
    _, found = watched(record(4, FIRST), record(5, SECOND), record(6, None), record(7, replace(FIRST, topic_id="T2")))

    assert found == []


def test_a_history_that_breaks_off_may_lack_anything() -> None:
    streams, _ = watched(record(40, FIRST), record(41, SECOND))

    streams.break_off(0)

    assert list(streams.observe([record(3, FOURTH)], 0)) == []
    assert streams.counts["unseen"] == 1
    assert kinds(list(streams.observe([record(4, replace(FOURTH, seq=9))], 0))) == [Kind.ORDER]


def test_records_read_again_after_a_restart_are_judged_once() -> None:
    streams, _ = watched(record(4, FIRST), record(5, THIRD))
    items = dict([stream_item(streams.streams["g", "t", 0], 100.0), *progress_items(streams)])
    again = ClusterStreams("a", ["g"])
    recall(((k, v) for k, v in items.items() if v is not None), again, 100.0)

    found = list(again.observe([record(4, FIRST), record(5, THIRD), record(6, FOURTH)], 0))

    assert found == []
    assert again.counts["commits"] == 3
    assert again.streams["g", "t", 0].position == 40


def test_everything_that_matters_survives_a_restart() -> None:
    streams, (anomaly,) = watched(record(4, FIRST), record(6, SECOND), record(7, FOURTH))
    stream = streams.streams["g", "t", 0]
    list(streams.inspect({STREAM: Bounds(0, 99, "T1")}, 50.0, 9_000, 1e9))
    items = [stream_item(stream, 1_000.0), anomaly_item(anomaly), *progress_items(streams)]

    again = ClusterStreams("a", ["g"])
    reported = recall([(k, v) for k, v in items if v is not None], again, 1_020.0)

    restored = again.streams["g", "t", 0]
    assert reported == [anomaly]
    assert (restored.known, restored.text, restored.missing) == (stream.known, stream.text, stream.missing)
    assert again.progress == {0: replace(streams.progress[0], end=None)}
    assert restored.standing.moved_at == 30.0, "the age of a stall continues: 20 s less of the steady clock"


def test_an_item_that_cannot_be_read_is_dropped_and_counted() -> None:
    streams = ClusterStreams("a", ["g"])

    recall([("stream/x", b"{"), ("progress/x", b"{}"), ("anomaly/x", b"[]"), ("new/x", b"{}")], streams, 0.0)

    assert streams.counts["checkpointsDropped"] == 3


@pytest.mark.parametrize(("begin", "reported"), [(30, 0), (29, 1)])
def test_a_jump_with_the_window_closed_is_reported_unless_retention_explains_it(begin: int, reported: int) -> None:
    jumped = replace(FIRST, seq=2, position=30, window=Window(30), tables=())
    streams, found = watched(record(4, FIRST), record(5, jumped))
    assert found == [], "only the log can show it"

    bounds = {STREAM: Bounds(begin, 99, "T1")}
    (doubt,) = streams.doubts(bounds)
    assert doubt.finding.unless == LogBegins(30)

    settled = list(streams.settle([(doubt, Answer.NO if reported else Answer.YES)], bounds))

    assert [(a.finding.kind, a.finding.first, a.finding.last) for a in settled] == [(Kind.GAP, 10, 29)] * reported
    assert streams.doubts(bounds) == []


def test_a_position_beyond_the_log_is_reported_at_the_second_look_and_ends() -> None:
    streams, _ = watched(record(4, FIRST))

    def look(end: int, now: float, topic: str = "T1") -> list[tuple[Kind, bool]]:
        reported = streams.inspect({STREAM: Bounds(0, end, topic)}, now, 9_000, 1e9)
        return [(anomaly.finding.kind, holds) for anomaly, holds in reported]

    assert look(5, 1.0) == []
    assert look(5, 2.0) == [(Kind.BEYOND_END, True)]
    assert look(5, 3.0) == []
    assert look(10, 4.0) == [(Kind.BEYOND_END, False)]
    assert look(0, 5.0, "T2") == look(0, 6.0, "T2") == [], "that is another topic's log, and nothing was missed"
    assert look(5, 7.0, "T2") == []
    assert look(5, 8.0, "T2") == [(Kind.OTHER_TOPIC, True)], "its messages are not loaded, or as the old topic's"
    list(streams.observe([record(5, replace(FIRST, topic_id="T2"))], 0))
    assert look(5, 9.0, "T2") == [(Kind.OTHER_TOPIC, False)]


def test_a_log_that_ends_below_where_it_was_seen_to_end_was_cut_whichever_owner_has_read_from_there() -> None:
    streams, _ = watched(record(4, FIRST))

    def look(end: int) -> list[tuple[Kind, int | None, int | None]]:
        reported = streams.inspect({STREAM: Bounds(0, end, "T1")}, 1.0, 9_000, 1e9)
        return [(anomaly.finding.kind, anomaly.finding.first, anomaly.finding.last) for anomaly, _ in reported]

    assert look(90) == []
    assert look(60) == [], "a new leader may know less of the end for a moment"
    assert look(60) == [(Kind.TRUNCATED, 60, 89)]
    assert look(60) == look(120) == []


def test_a_stream_that_begins_above_its_logs_begin_is_a_gap_unless_a_tool_chose_that_offset() -> None:
    begun = replace(
        FIRST, position=30, window=Window(20, 10), tables=(TableEntry(1, InFlight(20, 29, 10, 1, 7, 1_000)),)
    )
    bounds = {STREAM: Bounds(0, 99, "T1")}

    streams, found = watched(record(4, begun))
    assert found == []
    assert [(d.finding.kind, d.finding.last, d.finding.unless) for d in streams.doubts(bounds)] == [
        (Kind.GAP, 19, LogBegins(20))
    ]
    chosen, _ = watched((0, 4, key(), value(20, "")), record(5, begun))
    assert chosen.doubts(bounds) == []
    elsewhere, _ = watched((0, 4, key(), value(10, "")), record(5, begun))
    assert len(elsewhere.doubts(bounds)) == 1


def test_a_topic_that_is_created_again_is_begun_at_its_begin_too() -> None:
    again = replace(FIRST, topic_id="T2", position=30, window=Window(20, 10))
    again = replace(again, tables=(TableEntry(1, InFlight(20, 29, 10, 1, 7, 1_000)),))

    streams, found = watched(record(4, FIRST), record(5, SECOND), record(6, again))

    assert found == []
    assert [d.finding.unless for d in streams.doubts({STREAM: Bounds(0, 99, "T2")})] == [LogBegins(20)]


def test_a_history_cannot_begin_in_the_middle_when_nothing_is_missing() -> None:
    _, found = watched(record(1, FOURTH))
    assert kinds(found) == [Kind.ORDER]

    _, found = watched(record(3, FOURTH))
    assert found == []


def test_missing_records_of_others_excuse_nothing_while_the_commit_before_is_there() -> None:
    streams, found = watched(record(4, FIRST), record(9, THIRD))
    assert found == []
    bounds = {STREAM: Bounds(0, 99, "T1")}
    (doubt,) = streams.doubts(bounds)
    assert (doubt.finding.kind, doubt.finding.unless) == (Kind.ORDER, CommitCompacted(0, 4))

    assert list(streams.settle([(doubt, Answer.NOT_NOW)], bounds)) == []
    assert streams.doubts(bounds) == [doubt], "it is asked again"
    assert list(streams.settle([(doubt, Answer.NO)], bounds)) == [doubt]


def test_holes_that_follow_each_other_become_one_question() -> None:
    window = replace(SECOND.window, sealed=20, holes=3)
    second = replace(SECOND, position=23, window=window)
    third = replace(second, seq=3, position=30, window=replace(window, holes=10), tables=())

    streams, found = watched(record(4, FIRST), record(5, second), record(6, third))

    bounds = {STREAM: Bounds(0, 99, "T1")}
    (doubt,) = streams.doubts(bounds)
    assert (found, doubt.finding.unless) == ([], HolesAreThere(10, 30, 10))
    assert list(streams.settle([(doubt, Answer.UNREAD)], bounds)) == []
    assert (streams.counts["unchecked"], streams.doubts(bounds)) == (1, [])


def test_a_position_of_an_earlier_epoch_is_held_against_the_log() -> None:
    streams, _ = watched(record(4, FIRST))
    (doubt,) = streams.doubts({STREAM: Bounds(0, 99, "T1", 1)})
    assert (doubt.finding.kind, doubt.finding.unless) == (Kind.TRUNCATED, EpochReaches(0, 10))
    list(streams.settle([(doubt, Answer.YES)], {}))
    assert streams.doubts({STREAM: Bounds(0, 99, "T1", 1)}) == [], "once for each leader"

    list(streams.observe([record(5, replace(SECOND, leader_epoch=1))], 0))
    assert [d.finding.unless for d in streams.doubts({STREAM: Bounds(0, 99, "T1", 1)})] == [EpochReaches(0, 10)], (
        "the log was cut and written again between two reads: the commit before shows it"
    )


def test_suspicions_survive_a_restart() -> None:
    streams, _ = watched(record(4, FIRST), record(9, replace(THIRD, leader_epoch=1)))
    stream = streams.streams["g", "t", 0]
    assert len(stream.suspicions) == 2
    again = ClusterStreams("a", ["g"])

    recall([(k, v) for k, v in [stream_item(stream, 0.0)] if v is not None], again, 0.0)

    assert again.streams["g", "t", 0].suspicions == stream.suspicions


def test_what_is_asked_for_and_not_found_is_reported() -> None:
    streams, _ = watched(record(4, FIRST), groups=("g", "h*"))

    (problem,) = unmatched(("g", "h*"), ("*",), [streams])

    assert "'h*'" in problem


def test_a_stall_is_of_the_stream_and_of_the_table_that_stands_still() -> None:
    streams, _ = watched(record(4, FIRST))

    def look(end: int, now: float) -> list[tuple[str | None, bool]]:
        reported = streams.inspect({STREAM: Bounds(0, end, "T1")}, now, 9_000, 60.0)
        return [(anomaly.finding.table, holds) for anomaly, holds in reported]

    assert look(10, 0.0) == []
    assert look(10, 59.0) == []
    assert look(10, 60.0) == [("1", True)], "the block is still in flight; the stream itself has nothing to do"
    assert look(11, 61.0) == []
    assert look(11, 119.0) == []
    assert look(11, 120.0) == [(None, True)]
    list(streams.observe([record(5, SECOND)], 0))
    assert sorted(look(20, 121.0), key=str) == sorted([(None, False), ("1", False)], key=str)
