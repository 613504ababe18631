"""Where a partition continues: nothing is skipped silently, and a gap in the tail is never jumped."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse_mirror.protocol.position import Position
from blockhouse_mirror.protocol.provenance import Origin
from blockhouse_mirror.protocol.takeover import Log, Reason, Start, Stop, after_tail, decide

POSITION = Position("S", "t", 0, 50, 3, "u", 40)
SOURCE, TARGET = Log("S", "t", 10, 90), Log("T", "u", 0, 45)
GAPS = {
    Reason.SOURCE_REPLACED: (replace(SOURCE, cluster="other"), TARGET),
    Reason.SOURCE_RECREATED: (replace(SOURCE, topic_id="t2", begin=0, end=7), TARGET),
    Reason.SOURCE_TRUNCATED: (replace(SOURCE, end=49), TARGET),
    Reason.RETENTION: (replace(SOURCE, begin=53), TARGET),
    Reason.TARGET_RECREATED: (SOURCE, replace(TARGET, topic_id="u2", end=0)),
    Reason.TARGET_TRUNCATED: (SOURCE, replace(TARGET, end=39)),
}


def chain(*links: tuple[int, int]) -> list[Origin]:
    """Origins with (offset, after)."""
    return [Origin("S", "t", 0, offset, after) for offset, after in links]


def test_it_continues_at_its_position() -> None:
    assert decide(POSITION, SOURCE, TARGET, skip=False) == Start(50, 3, 40)


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (replace(SOURCE, begin=50), TARGET),
        (replace(SOURCE, end=50), TARGET),
        (SOURCE, replace(TARGET, end=40)),
        (SOURCE, replace(TARGET, begin=41)),  # retention of the target is no loss
    ],
)
def test_bounds_that_are_just_met_are_no_gap(source: Log, target: Log) -> None:
    assert decide(POSITION, source, target, skip=False) == Start(50, 3, 40)


@pytest.mark.parametrize("reason", GAPS)
def test_every_gap_is_a_stop_with_its_reason_and_figures(reason: Reason) -> None:
    source, target = GAPS[reason]

    found = decide(POSITION, source, target, skip=False)

    assert isinstance(found, Stop)
    assert found.reason is reason
    changed = {
        Reason.SOURCE_REPLACED: "other",
        Reason.SOURCE_RECREATED: "t2",
        Reason.SOURCE_TRUNCATED: "49",
        Reason.RETENTION: "up to 3 records from 50",
        Reason.TARGET_RECREATED: "u2",
        Reason.TARGET_TRUNCATED: "39",
    }
    assert changed[reason] in found.message


def test_another_cluster_is_never_passed() -> None:
    """Its offsets are others: an address that leads to another cluster is a mistake, no gap."""
    source, target = GAPS[Reason.SOURCE_REPLACED]

    assert isinstance(decide(POSITION, source, target, skip=True), Stop)


@pytest.mark.parametrize("reason", [reason for reason in GAPS if reason is not Reason.SOURCE_REPLACED])
def test_by_the_users_word_a_gap_is_named_and_passed(reason: Reason) -> None:
    source, target = GAPS[reason]

    found = decide(POSITION, source, target, skip=True)

    assert isinstance(found, Start)
    assert (found.gap, found.offset, found.epoch) == (reason, source.begin, -1)
    assert found.skipped == (3 if reason is Reason.RETENTION else 0)


def test_the_topic_that_was_created_again_is_not_continued_even_where_offsets_fit() -> None:
    source = replace(SOURCE, topic_id="t2")

    found = decide(POSITION, source, TARGET, skip=False)

    assert isinstance(found, Stop)
    assert found.reason is Reason.SOURCE_RECREATED


def test_behind_a_passed_retention_gap_the_tail_is_read_as_ever() -> None:
    """50 to 55 were mirrored and not reported when their task died; then retention took all below 53."""
    start = decide(POSITION, replace(SOURCE, begin=53), TARGET, skip=True)

    assert isinstance(start, Start)
    tail = [origin for at, origin in enumerate(chain(*((o, o) for o in range(50, 56))), start=40) if at >= start.tail]
    assert after_tail(start.offset, tail) == 56, "53 to 55 are on the target"


# --- the tail ---------------------------------------------------------------------------------------------------


def test_an_empty_tail_changes_nothing() -> None:
    assert after_tail(50, []) == 50


def test_what_a_former_task_wrote_is_not_mirrored_again() -> None:
    assert after_tail(50, chain((50, 50), (51, 51), (53, 52))) == 54


def test_holes_between_records_are_no_gap() -> None:
    assert after_tail(50, chain((55, 50), (70, 56))) == 71


def test_a_gap_is_not_jumped() -> None:
    """51 expired unsent before 52 was sent (G1): 51 is not on the target."""
    assert after_tail(50, chain((50, 50), (52, 52), (53, 53))) == 51


def test_a_tail_that_begins_behind_a_gap_is_not_believed() -> None:
    assert after_tail(50, chain((51, 51))) == 50


def test_records_below_the_position_change_nothing() -> None:
    assert after_tail(50, chain((47, 40), (48, 48))) == 50


def test_records_that_are_doubled_already_lead_no_way_back() -> None:
    assert after_tail(50, chain((50, 50), (51, 51), (50, 50), (51, 51), (52, 52))) == 53


def test_where_the_target_has_cut_the_tail_its_first_record_is_believed_and_no_later_one() -> None:
    assert after_tail(50, chain((57, 57), (58, 58)), cut=True) == 59
    assert after_tail(50, chain((57, 57), (60, 60)), cut=True) == 58
