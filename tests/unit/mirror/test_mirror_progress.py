"""How far a partition is: never past a record in flight, whatever lies between records."""

from __future__ import annotations

import pytest

from blockhouse_mirror.protocol.progress import OutOfOrder, Progress, Run


def test_a_new_one_is_where_it_begins() -> None:
    progress = Progress(5, 2, 40)

    assert (progress.position, progress.epoch, progress.tail, progress.after) == (5, 2, 40, 5)
    assert progress.settled


def test_the_position_stays_at_the_oldest_record_in_flight() -> None:
    progress = Progress(5, -1, 40)
    progress.sent(Run.of_one(5, 10, 1_000))
    progress.sent(Run(6, 8, 2, 20, 2_000, 5_000))
    progress.advance(10)

    assert (progress.position, progress.read, progress.in_flight_bytes) == (5, 10, 30)
    assert not progress.settled

    assert progress.acknowledged(40).sum_ms == 1_000
    assert (progress.position, progress.tail, progress.in_flight_bytes) == (6, 41, 20)

    assert progress.acknowledged(44).sum_ms == 5_000, "others write to the target's partition, too"
    assert (progress.position, progress.tail, progress.records, progress.bytes) == (10, 45, 3, 30)
    assert progress.settled


def test_what_is_left_out_and_holes_move_the_position_and_not_the_chain() -> None:
    progress = Progress(5, -1, 0)
    progress.leave_out(5)
    progress.advance(8)

    assert (progress.position, progress.after, progress.left_out) == (8, 5, 1)

    progress.sent(Run.of_one(8, 1, 0))
    assert progress.after == 9


def test_an_older_end_does_not_move_it_back() -> None:
    progress = Progress(5, -1, 0)
    progress.advance(3)

    assert progress.read == 5


def test_an_acknowledgement_of_nothing_or_behind_the_tail_is_noticed() -> None:
    progress = Progress(5, -1, 40)
    with pytest.raises(OutOfOrder):
        progress.acknowledged(40)

    progress.sent(Run(5, 9, 3, 1, 0, 0))
    with pytest.raises(OutOfOrder, match="41 was acknowledged for 3 behind 40"):
        progress.acknowledged(41)
    assert progress.position == 5
    progress.acknowledged(42)
    assert (progress.position, progress.tail) == (10, 43)


def test_what_is_known_of_runs_in_flight_by_their_number() -> None:
    progress = Progress(5, -1, 40)
    for first in (5, 10):
        progress.sent(Run(first, first + 3, 4, 1, 0, 0))

    assert [progress.last_in_flight(number) for number in range(3)] == [8, 13, 13]


def test_the_epoch_is_that_of_the_last_record_below_the_position() -> None:
    progress = Progress(5, 1, 0)
    for offset, epoch in ((5, 1), (6, 3), (7, 3), (8, 4)):
        progress.in_epoch(offset, epoch)
        progress.sent(Run.of_one(offset, 1, 0))

    seen = []
    for target_offset in range(4):
        seen.append((progress.position, progress.epoch))
        progress.acknowledged(target_offset)

    assert seen == [(5, 1), (6, 1), (7, 3), (8, 3)]
    assert (progress.position, progress.epoch) == (9, 4)
