"""When an "ok" may be believed, and when a block is certainly still in the deduplication window."""

from __future__ import annotations

import pytest

from blockhouse_aggregator.clickhouse.quorum import QuorumSnapshot, acknowledgeable, window_certain

HOUR_MS = 3_600_000


def test_an_ok_with_a_clear_quorum_and_no_failed_part_in_between_acknowledges() -> None:
    assert acknowledgeable(QuorumSnapshot(False, 5), QuorumSnapshot(False, 5))
    assert acknowledgeable(QuorumSnapshot(True, 5), QuorumSnapshot(False, 5))


def test_an_ok_while_a_part_waits_for_its_quorum_does_not() -> None:
    assert not acknowledgeable(QuorumSnapshot(False, 5), QuorumSnapshot(True, 5))


def test_an_ok_does_not_when_a_part_failed_in_between() -> None:
    assert not acknowledgeable(QuorumSnapshot(False, 5), QuorumSnapshot(False, 6))


@pytest.mark.parametrize(
    ("what", "age_ms", "blocks", "certain"),
    [
        ("young, few blocks", 1_000, 3, True),
        ("up to half of the window", HOUR_MS, 50, True),
        ("more than half of the window in blocks", 1_000, 51, False),
        ("more than half of the window in time", 4 * HOUR_MS, 0, False),
        ("from the future, within the skew", -500, 0, True),
        ("from the future, beyond the skew", -5_000, 0, False),
    ],
)
def test_only_the_first_half_of_either_window_is_trusted(what: str, age_ms: int, blocks: int, certain: bool) -> None:
    answer = window_certain(
        intent_ms=1_000_000_000_000,
        now_ms=1_000_000_000_000 + age_ms,
        blocks_since=blocks,
        window=100,
        window_seconds=7 * 3600,
        clock_skew=1.0,
    )
    assert answer is certain, what


def test_a_table_that_does_not_deduplicate_is_never_certain_once_anything_was_written() -> None:
    assert not window_certain(0, 1_000, 1, window=0, window_seconds=0, clock_skew=0.0)
    assert not window_certain(0, 1_000, 0, window=0, window_seconds=0, clock_skew=0.0)
