"""Blocks grow while a stream is behind and shrink when it has caught up."""

from blockhouse.config.pipeline import Blocks
from blockhouse_aggregator.runtime.pacing import Pace, next_pace

BLOCKS = Blocks()


def test_blocks_double_while_more_is_left_than_was_taken_up_to_the_configured_ceiling() -> None:
    pace = Pace()
    sizes = []
    for _ in range(5):
        pace = next_pace(pace, BLOCKS, behind=1_000_000, taken=10_000, late=False)
        sizes.append(pace.max_bytes(BLOCKS) >> 20)
    assert sizes == [20, 40, 64, 64, 64]


def test_blocks_grow_when_inserts_cannot_keep_the_cadence() -> None:
    pace = next_pace(Pace(), BLOCKS, behind=0, taken=10, late=True)
    assert pace.factor == 2
    assert 1 < pace.max_age() < 5, "rows must stay fresh"


def test_blocks_shrink_step_by_step_once_caught_up() -> None:
    pace = Pace(4)
    pace = next_pace(pace, BLOCKS, behind=0, taken=10_000, late=False)
    assert pace.factor == 2
    pace = next_pace(pace, BLOCKS, behind=0, taken=10_000, late=False)
    assert (pace.factor, pace.catching_up, pace.max_age()) == (1, False, 0.0)


def test_a_stream_that_was_behind_catches_up_until_it_has_read_all() -> None:
    pace = next_pace(Pace(), BLOCKS, behind=25_000, taken=10_000, late=False)
    assert pace.catching_up
    pace = next_pace(pace, BLOCKS, behind=5_000, taken=20_000, late=False)
    assert (pace.catching_up, pace.max_age()) == (True, 10.0)
    pace = next_pace(pace, BLOCKS, behind=50, taken=5_000, late=False)
    assert (pace.catching_up, pace.max_age()) == (False, 0.0), "what came while the round was read"


def test_a_round_that_took_nothing_has_not_caught_up() -> None:
    # given a stream that was behind when it was taken over, whose broker has not answered yet
    pace = next_pace(Pace(catching_up=True), BLOCKS, behind=0, taken=0, late=False)
    # then what it hears first is not gathered until it is of age
    assert pace.catching_up
    assert not next_pace(pace, BLOCKS, behind=0, taken=5_000, late=False).catching_up


def test_blocks_that_may_not_grow_are_filled_all_the_same_while_the_stream_is_behind() -> None:
    fixed = Blocks(grow_to_bytes=BLOCKS.max_bytes)
    pace = next_pace(Pace(), fixed, behind=1_000_000, taken=10_000, late=False)
    assert (pace.max_bytes(fixed), pace.max_rows(fixed)) == (fixed.max_bytes, fixed.max_rows)
    assert pace.max_age() == 10.0


def test_rows_stay_below_the_servers_squashing_limit() -> None:
    assert Pace(64).max_rows(BLOCKS) == 1_048_575


def test_many_streams_share_what_grown_blocks_may_hold_and_never_fall_below_the_configured_size() -> None:
    grown = Pace(64, catching_up=True)
    assert [grown.max_bytes(BLOCKS, streams) >> 20 for streams in (1, 2, 4, 8, 100)] == [64, 64, 32, 16, 10]
