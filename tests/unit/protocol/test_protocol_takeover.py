"""Taking over a stream: what an owner may continue from, and what stops it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse.metadata.codec import encoded_size
from blockhouse.metadata.invariants import violations
from blockhouse.metadata.model import TableEntry
from blockhouse_aggregator.protocol.events import Commit, CommitRefused, CommitSucceeded, Flush, Rebuild
from blockhouse_aggregator.protocol.schedule import replays, scan
from blockhouse_aggregator.protocol.state import Stage, StreamState, metadata_of
from blockhouse_aggregator.protocol.step import step
from blockhouse_aggregator.protocol.takeover import Facts, Start, Stop, take_over
from tests.unit.protocol.given import NOW, A, B, C, intent, metadata

NEVER = Facts(
    offset=None,
    metadata=None,
    unreadable="",
    log_begin=0,
    log_end=1000,
    topic_id="T1",
    compacted=False,
    marker_topic_id=None,
)
RECORDED = metadata(
    500,
    TableEntry(A, intent(450, 480)),
    TableEntry(B, intent(440, 460), cursor=470, pending=3),
    TableEntry(C, cursor=400, pending=20),
)
RUNNING = replace(NEVER, offset=400, metadata=RECORDED, marker_topic_id="T1")


def start_of(facts: Facts) -> Start:
    decision = take_over(facts, replica="r2", epoch=5, now_ms=NOW)
    assert isinstance(decision, Start), decision
    return decision


def state_of(facts: Facts) -> StreamState:
    return start_of(facts).state


def test_inherited_blocks_are_replayed_and_the_rest_continues_where_it_was() -> None:
    state = state_of(RUNNING)
    assert [(t.table, t.block.stage) for t in state.in_flight if t.block] == [(A, Stage.REPLAY), (B, Stage.REPLAY)]
    assert (state.table(B).cursor, state.table(C).cursor, state.position) == (470, 400, 500)
    assert (state.seq, state.epoch, state.replica, state.replaying) == (RECORDED.seq, 5, "r2", True)
    assert metadata_of(state, NOW).committed_offset == 400


def test_an_inherited_block_is_not_sent_before_a_commit_has_proved_that_the_stream_is_ours() -> None:
    # given an owner who has only read; reading is open to a process that has lost the stream long ago
    state = state_of(RUNNING)
    assert replays(state, ready=frozenset({A, B, C})) is None
    # when it flushes, it commits although nothing has changed
    state, (commit,) = step(state, Flush(), NOW)
    assert isinstance(commit, Commit)
    assert (commit.offset, commit.metadata.tables) == (400, RECORDED.tables)
    # then a success opens the replays, and a refusal closes the state
    confirmed, _ = step(state, CommitSucceeded(commit.metadata.seq), NOW)
    assert replays(confirmed, ready=frozenset({A, B, C})) is not None
    refused, effects = step(state, CommitRefused(commit.metadata.seq, "IllegalGeneration"), NOW)
    assert (refused.closed, effects) == (True, (Rebuild("IllegalGeneration"),))


def test_the_confirming_commit_is_no_longer_than_the_one_it_confirms() -> None:
    full = metadata(500, *(TableEntry(table, intent(450, 480)) for table in range(1, 150)))
    facts = replace(RUNNING, offset=450, metadata=full)
    _, (commit,) = step(state_of(facts), Flush(), NOW + 86_400_000)
    assert isinstance(commit, Commit)
    assert encoded_size(replace(commit.metadata, replica=full.replica)) <= encoded_size(full)


def test_an_owner_with_nothing_to_replay_need_not_commit() -> None:
    idle = replace(RUNNING, offset=500, metadata=metadata(500))
    assert step(state_of(idle), Flush(), NOW)[1] == ()


def test_the_next_owner_rebuilds_exactly_the_recorded_boundaries() -> None:
    request = replays(replace(state_of(RUNNING), confirmed=True), ready=frozenset({A, B, C}))
    assert request is not None
    assert request.blocks == ((B, intent(440, 460)), (A, intent(450, 480)))


def test_the_next_owner_reads_below_the_position_only_what_lags() -> None:
    request = scan(state_of(RUNNING), skipped=frozenset(), near=1000, catch_up=False)
    assert (request.start, request.position, request.resume) == (400, 500, ((C, 400),))
    assert request.exclude == {A, B}


def test_a_stream_never_started_begins_at_the_earliest_offset_or_where_a_tool_put_it() -> None:
    assert state_of(replace(NEVER, log_begin=30)).position == 30
    assert state_of(replace(NEVER, offset=700)).position == 700


def test_an_offset_below_the_log_is_reported_not_passed_over() -> None:
    start = start_of(replace(NEVER, offset=10, log_begin=30))
    assert (start.state.position, start.state.window.holes) == (30, 20)
    assert [alarm.reason for alarm in start.alarms] == ["MessagesExpired"]


def test_messages_taken_by_retention_before_they_were_read_are_counted_holes() -> None:
    start = start_of(replace(RUNNING, log_begin=510, log_end=1000))
    assert (start.state.position, start.state.window.holes) == (510, 10)
    assert [(a.reason, a.table) for a in start.alarms] == [
        ("MessagesExpired", None),
        ("LaggingMessagesExpired", B),
        ("LaggingMessagesExpired", C),
    ]
    assert start.state.table(A).block is not None, "the replay finds out, provenance decides"
    assert violations(metadata_of(start.state, NOW)) == []


def test_an_acceptance_lasts_until_the_restart_that_it_allows_is_marked() -> None:
    """An owner began afresh, committed its first metadata and died before the marker: nothing of that is stored."""
    stopped = replace(RUNNING, cut=True, accepted="LogTruncated", accepted_from=300)
    assert state_of(stopped).position == 300
    begun = replace(RUNNING, marker_seq=RECORDED.seq + 811, accepted="LogTruncated", accepted_from=300)
    died = replace(begun, marker_restarting="LogTruncated")
    assert (state_of(died).position, state_of(died).seq) == (300, 0)
    for other in (begun, replace(died, accepted=""), replace(died, accepted="TopicRecreated")):
        decision = take_over(other, replica="r2", epoch=5, now_ms=NOW)
        assert isinstance(decision, Stop)
        assert decision.reason == "OffsetsWentBack"
    for something_else in (replace(died, topic_id="T2"), replace(died, history="new", marker_history="old")):
        assert isinstance(take_over(something_else, replica="r2", epoch=5, now_ms=NOW), Stop)


STOPS = {
    "reset to 0 by a tool": (replace(RUNNING, offset=0, metadata=None), "OffsetsReset"),
    "rewound with its metadata": (replace(RUNNING, offset=300), "OffsetsReset"),
    "jumped with its metadata": (replace(RUNNING, offset=600), "OffsetsReset"),
    "offsets expired": (replace(RUNNING, offset=None, metadata=None), "OffsetsExpired"),
    "topic made again": (replace(RUNNING, topic_id="T2"), "TopicRecreated"),
    "topic made again, offsets gone": (replace(RUNNING, offset=None, metadata=None, topic_id="T2"), "TopicRecreated"),
    "log shorter than the position": (replace(RUNNING, log_end=499), "LogTruncated"),
    "log truncated and grown again": (replace(RUNNING, cut=True), "LogTruncated"),
    "offset and metadata of an earlier commit": (replace(RUNNING, marker_seq=RECORDED.seq + 1), "OffsetsWentBack"),
    "position of an earlier commit": (replace(RUNNING, marker_seq=1, marker_position=501), "OffsetsWentBack"),
    "table ids of another history": (
        replace(RUNNING, history="new", marker_history="old"),
        "SchemaHistoryReplaced",
    ),
    "marker gone": (replace(RUNNING, marker_topic_id=None), "MarkerMissing"),
    "unreadable": (replace(RUNNING, metadata=None, unreadable="checksum"), "MetadataUnreadable"),
    "set beyond the end": (replace(NEVER, offset=1001), "OffsetBeyondEnd"),
    "compacted": (replace(RUNNING, compacted=True), "CompactedTopic"),
}


@pytest.mark.parametrize("case", STOPS)
def test_an_abnormal_stream_is_stopped_for_a_named_reason(case: str) -> None:
    facts, reason = STOPS[case]
    decision = take_over(facts, replica="r2", epoch=5, now_ms=NOW)
    assert isinstance(decision, Stop)
    assert decision.reason == reason
    # and another reason accepted does not help
    other = take_over(replace(facts, accepted="Another"), replica="r2", epoch=5, now_ms=NOW)
    assert other == decision


@pytest.mark.parametrize("case", [case for case in STOPS if case not in ("compacted", "marker gone")])
def test_an_accepted_reason_starts_afresh_and_states_it(case: str) -> None:
    facts, reason = STOPS[case]
    start = start_of(replace(facts, accepted=reason, accepted_from=490))
    assert (start.state.position, start.state.tables, start.state.recorded) == (490, (), None)
    assert [alarm.reason for alarm in start.alarms] == ["StreamRestarted"]
    assert start_of(replace(facts, accepted=reason, log_begin=20)).state.position == 20


def test_a_compacted_topic_cannot_be_accepted() -> None:
    facts = replace(RUNNING, compacted=True, accepted="CompactedTopic")
    assert isinstance(take_over(facts, replica="r2", epoch=5, now_ms=NOW), Stop)


def test_a_log_that_ends_exactly_at_the_position_is_not_truncated() -> None:
    assert state_of(replace(RUNNING, log_end=500)).position == 500


def test_metadata_without_a_topic_id_is_taken_over_under_the_present_one() -> None:
    facts = replace(RUNNING, metadata=replace(RECORDED, topic_id=""))
    assert state_of(facts).topic_id == "T1"
    assert isinstance(take_over(replace(facts, marker_topic_id="T0"), replica="r2", epoch=5, now_ms=NOW), Stop)


def test_metadata_at_or_ahead_of_its_marker_did_not_go_back() -> None:
    """A block is stored only after the marker states so, a commit without blocks moves on without it."""
    assert state_of(replace(RUNNING, marker_seq=RECORDED.seq, marker_position=500)).position == 500
    assert state_of(replace(RUNNING, marker_seq=1, marker_position=20)).position == 500


def test_a_missing_marker_is_legal_as_long_as_nothing_can_be_stored() -> None:
    """Every owner so far died between its first commit and the marker; without a marker no block is inserted."""
    first = replace(metadata(500, TableEntry(A, intent(450, 480))), seq=1)
    sent = sum(e.in_flight.messages for e in first.tables if e.in_flight)
    for seq in (1, 2, 3):
        nothing = replace(first, seq=seq, window=replace(first.window, sealed=sent))
        assert state_of(replace(RUNNING, offset=450, metadata=nothing, marker_topic_id=None)).seq == seq
    stored = replace(first, seq=3, window=replace(first.window, sealed=sent + 1))
    decision = take_over(
        replace(RUNNING, offset=450, metadata=stored, marker_topic_id=None), replica="r2", epoch=5, now_ms=NOW
    )
    assert isinstance(decision, Stop)


def test_the_marker_of_a_former_topic_states_nothing_of_the_present_one() -> None:
    """`TopicRecreated` was accepted, and the owner died between the first commit and the new marker."""
    first = replace(metadata(5, TableEntry(A, intent(0, 4))), seq=1)
    given = replace(NEVER, offset=0, metadata=first, marker_topic_id="T0", marker_seq=3, marker_position=5)
    facts = replace(given, log_end=5)
    assert state_of(facts).seq == 1
    # so much that a block may have been stored: the marker was replaced, and is the older one again
    stored = replace(first, seq=4, window=replace(first.window, sealed=first.window.sealed + 1))
    stop = take_over(replace(facts, metadata=stored), replica="r2", epoch=5, now_ms=NOW)
    assert isinstance(stop, Stop)
    assert stop.reason == "MarkerMissing"
    assert "T0" in stop.message


def test_an_accepted_missing_marker_lets_the_stream_continue_where_it_is() -> None:
    start = start_of(replace(RUNNING, marker_topic_id=None, accepted="MarkerMissing"))
    assert (start.state.position, start.state.seq, len(start.state.in_flight)) == (500, RECORDED.seq, 2)
    assert [alarm.reason for alarm in start.alarms] == ["MarkerAdopted"]
