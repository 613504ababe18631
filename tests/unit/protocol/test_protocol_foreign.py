"""Taking over from eBay's aggregator: what its metadata means in ours."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse.metadata import codec
from blockhouse.metadata.codec import decode, encode
from blockhouse.metadata.invariants import violations
from blockhouse.metadata.model import FOREIGN, InFlight, TableEntry
from blockhouse_aggregator.protocol.events import Commit, CommitSucceeded, Flush, Insert, Rebuilt
from blockhouse_aggregator.protocol.foreign import ForeignTable, Survey, Surveyed, adopt, bounds, hand_back
from blockhouse_aggregator.protocol.schedule import replays
from blockhouse_aggregator.protocol.state import Stage, StreamState
from blockhouse_aggregator.protocol.takeover import Facts, NeedsSurvey, Start, Stop, take_over
from tests.unit.protocol.given import NOW, A, B, C, after, intent, metadata, sealed

# offset   100 101 102 103 104 105 106 | 107
# message    A   B   A   -   B   A   C |
# A [100, 102] was committed as a block, B (102, 101) has everything below 102 stored, C was never seen.
TABLES = (ForeignTable(A, 100, 102, revision=3), ForeignTable(B, 102, 101, revision=1))
FACTS = Facts(
    offset=100,
    metadata=None,
    unreadable="",
    log_begin=0,
    log_end=107,
    topic_id="T1",
    compacted=False,
    marker_topic_id=None,
    foreign=TABLES,
)


def taken_over(facts: Facts, survey: Survey) -> StreamState:
    assert facts.foreign is not None
    metadata = adopt(facts.foreign, survey, topic_id="T1", seq=0, now_ms=NOW)
    assert violations(metadata) == []
    assert decode(encode(metadata)) == metadata
    decision = take_over(replace(facts, metadata=metadata, adopted=True), replica="r1", epoch=1, now_ms=NOW)
    assert isinstance(decision, Start), decision
    return decision.state


def test_the_log_is_surveyed_from_the_committed_offset_to_behind_the_last_end() -> None:
    assert take_over(FACTS, replica="r1", epoch=1, now_ms=NOW) == NeedsSurvey(100, 103)
    assert bounds(100, TABLES, log_begin=101) == (101, 103)
    assert bounds(100, TABLES, log_begin=500) == (103, 103), "all of it is gone from the log"
    assert bounds(7, (), log_begin=0) == (7, 7), "nothing was ever committed: all below the offset is stored"
    assert bounds(7, (ForeignTable(A, 7, 6, 1), ForeignTable(B, 7, 6, 1)), log_begin=0) == (7, 7)


def test_a_block_in_flight_is_replayed_as_foreign_and_a_table_behind_its_end_lags() -> None:
    tables = (ForeignTable(A, 100, 102, revision=3), ForeignTable(B, 105, 105, revision=1))
    seen = (Surveyed(A, inside=2, beyond=1, first_beyond=105, oldest_ms=NOW - 5000), Surveyed(B, stored=2))
    state = taken_over(replace(FACTS, foreign=tables), Survey(100, 106, (*seen,)))
    assert state.position == 106
    assert state.table(A).block is not None
    assert state.table(A).block.intent == InFlight(100, 102, 2, FOREIGN, 3, NOW - 5000)  # type: ignore[union-attr]
    assert (state.table(A).cursor, state.table(A).pending) == (105, 1)
    assert state.table(B).block is not None, "of a block the log does not show, one message is kept"
    assert state.replaying


def test_the_empty_block_leaves_no_entry_and_an_unnamed_table_was_never_read() -> None:
    seen = (
        Surveyed(A, inside=2, oldest_ms=NOW),
        Surveyed(B, stored=1),
        Surveyed(C, beyond=1, first_beyond=101),
    )
    state = taken_over(FACTS, Survey(100, 103, seen))
    assert [t.table for t in state.tables] == [A, C]
    assert (state.table(C).cursor, state.table(C).pending) == (101, 1)
    assert state.window.holes == 0


def test_only_empty_blocks_begin_at_the_offset_with_nothing_to_replay() -> None:
    tables = (ForeignTable(A, 103, 102, 1), ForeignTable(B, 103, 102, 1))
    facts = replace(FACTS, offset=103, foreign=tables)
    assert take_over(facts, replica="r1", epoch=1, now_ms=NOW) == NeedsSurvey(103, 103)
    state = taken_over(facts, Survey(103, 103, ()))
    assert (state.position, state.tables) == (103, ())


def test_the_first_commit_writes_our_format_and_then_the_block_is_rebuilt_by_its_messages_alone() -> None:
    seen = (Surveyed(A, inside=2, oldest_ms=NOW - 5000), Surveyed(B, stored=1))
    state, effects = after(taken_over(FACTS, Survey(100, 103, seen)), Flush())
    (commit,) = effects
    assert isinstance(commit, Commit)
    assert (commit.offset, commit.metadata.topic_id, commit.metadata.seq) == (100, "T1", 1)
    state, _ = after(state, CommitSucceeded(1))
    request = replays(state, frozenset({A}))
    assert request is not None
    assert request.blocks[0][1].foreign
    built = replace(sealed(100, 102, 2), revision=3, crc=12345)
    _, (grant,) = after(state, Rebuilt(A, built))
    assert isinstance(grant, Insert)
    assert not grant.fresh


@pytest.mark.parametrize(
    "built",
    [
        replace(sealed(100, 102, 1), revision=3),
        replace(sealed(100, 102, 2), revision=4),
        replace(sealed(100, 101, 2), revision=3),
    ],
    ids=["a message is missing", "another revision", "another end"],
)
def test_a_foreign_block_with_other_messages_is_blocked(built: object) -> None:
    seen = (Surveyed(A, inside=2, oldest_ms=NOW), Surveyed(B, stored=1))
    state, _ = after(taken_over(FACTS, Survey(100, 103, seen)), Flush(), CommitSucceeded(1), Rebuilt(A, built))  # type: ignore[arg-type]
    assert state.table(A).block is not None
    assert state.table(A).block.stage is Stage.BLOCKED  # type: ignore[union-attr]


def test_an_empty_block_of_the_other_aggregator_is_read_as_nothing_in_flight() -> None:
    """It writes `begin = end + 1` where nothing is in flight: [12, 11], which metadata of ours must not contain."""
    tables = (ForeignTable(A, 12, 11, revision=1), ForeignTable(B, 30, 29, revision=1))
    state = taken_over(replace(FACTS, offset=12, foreign=tables), Survey(12, 30, (Surveyed(A), Surveyed(B, stored=18))))
    assert state.tables == ()
    assert state.position == 30


def test_the_age_of_a_foreign_block_is_never_negative() -> None:
    seen = (Surveyed(A, inside=2, oldest_ms=NOW + 60_000), Surveyed(B, stored=1))
    state = taken_over(FACTS, Survey(100, 103, seen))
    assert state.table(A).block is not None
    assert state.table(A).block.intent.intent_ms == NOW  # type: ignore[union-attr]


def test_what_retention_took_is_reported_and_counted() -> None:
    facts = replace(FACTS, log_begin=110, log_end=200)
    decision_facts = adopt(TABLES, Survey(103, 103, ()), topic_id="T1", seq=0, now_ms=NOW)
    decision = take_over(replace(facts, metadata=decision_facts, adopted=True), replica="r1", epoch=1, now_ms=NOW)
    assert isinstance(decision, Start)
    assert [alarm.reason for alarm in decision.alarms] == ["MessagesExpired"]
    assert decision.state.position == 110
    assert decision.state.table(A).block is not None


@pytest.mark.parametrize(
    ("facts", "reason"),
    [
        (replace(FACTS, log_end=102), "LogTruncated"),
        (replace(FACTS, marker_topic_id="T0"), "TopicRecreated"),
        (replace(FACTS, compacted=True), "CompactedTopic"),
        (replace(FACTS, unreadable="it belongs to offset 3"), "MetadataUnreadable"),
    ],
)
def test_what_stops_a_stream_stops_a_foreign_one(facts: Facts, reason: str) -> None:
    decision = take_over(facts, replica="r1", epoch=1, now_ms=NOW)
    assert isinstance(decision, Stop)
    assert decision.reason == reason


def test_handed_back_every_table_is_named_at_its_own_place_and_taken_over_again_it_is_the_same() -> None:
    ours = metadata(500, TableEntry(B, cursor=470, pending=3))
    back = hand_back(ours, {A: "a", B: "b", C: "c"}, "r1")
    assert codec.encode(back) == "1,,r1,a,500,499,0,b,470,469,0,c,500,499,0,,-1"
    assert back.committed_offset == ours.committed_offset == 470
    tables = (ForeignTable(A, 500, 499, 1), ForeignTable(B, 470, 469, 1), ForeignTable(C, 500, 499, 1))
    start, stop = bounds(470, tables, log_begin=0)
    seen = (Surveyed(B, beyond=3, first_beyond=470), Surveyed(A, stored=20))
    again = adopt(tables, Survey(start, stop, seen), topic_id="T1", seq=0, now_ms=NOW)
    assert (again.position, again.tables) == (ours.position, ours.tables)


def test_a_stream_that_comes_back_continues_the_numbers_of_its_marker() -> None:
    """Else no insert could be proven: the marker states a number the new owner has not reached."""
    facts = replace(FACTS, marker_topic_id="T1", marker_seq=41, marker_position=103)
    metadata = adopt(TABLES, Survey(100, 103, ()), topic_id="T1", seq=41, now_ms=NOW)
    adopted = replace(facts, metadata=metadata, adopted=True)
    decision = take_over(adopted, replica="r1", epoch=1, now_ms=NOW)
    assert isinstance(decision, Start)
    assert decision.state.seq == 41
    assert not decision.alarms
    behind = take_over(replace(adopted, marker_position=104), replica="r1", epoch=1, now_ms=NOW)
    assert isinstance(behind, Stop)
    assert behind.reason == "OffsetsWentBack"


def test_nothing_is_handed_back_with_a_block_in_flight() -> None:
    with pytest.raises(ValueError, match="in flight"):
        hand_back(metadata(500, TableEntry(A, intent(450, 480))), {A: "a"}, "r1")
    with pytest.raises(ValueError, match="no name"):
        hand_back(metadata(500, TableEntry(B, cursor=470, pending=3)), {A: "a"}, "r1")


def test_a_stream_of_which_every_table_lags_is_not_handed_back() -> None:
    """Version 1 would end at 470: at the return, 500 in the marker would be `OffsetsWentBack`."""
    lagging = metadata(500, TableEntry(B, cursor=470, pending=3))
    with pytest.raises(ValueError, match="every table lags"):
        hand_back(lagging, {B: "b"}, "r1")
    assert hand_back(lagging, {A: "a", B: "b"}, "r1").committed_offset == 470
