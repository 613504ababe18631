"""Blocks grow while a stream is behind and shrink when it has caught up."""

from blockhouse.config.pipeline import Blocks
from blockhouse_aggregator.runtime.stream.pacing import Pace, next_pace

BLOCKS = Blocks()


def test_blocks_double_while_more_is_left_than_was_taken_up_to_the_configured_ceiling() -> None:
    pace = Pace()
    sizes = []
    for _ in range(5):
        pace = next_pace(pace, BLOCKS, behind=1_000_000, taken=10_000, waited=0.1)
        sizes.append(pace.max_bytes(BLOCKS) >> 20)
    assert sizes == [20, 40, 64, 64, 64]


def test_blocks_grow_when_inserts_cannot_keep_the_cadence() -> None:
    pace = Pace()
    for _ in range(5):
        pace = next_pace(pace, BLOCKS, behind=0, taken=10, waited=2.1)
    assert pace.max_bytes(BLOCKS) == BLOCKS.grow_to_bytes
    assert 1 < pace.max_age(BLOCKS) < 5, "rows must stay fresh"


def test_slow_inserts_are_gathered_for_longer_before_they_cannot_keep_the_cadence() -> None:
    # given a shard whose inserts take a third of their blocks' age
    pace, ages = Pace(), []
    for _ in range(20):
        pace = next_pace(pace, BLOCKS, behind=0, taken=10, waited=0.33)
        ages.append(pace.max_age(BLOCKS))
    # then blocks are gathered longer, little by little, and are no larger for that
    assert ages == sorted(ages)
    assert ages[0] < 0.5 < 1.5 < ages[-1] < 1.7
    assert pace.factor == 1
    # and when it has recovered, as long as configured
    for _ in range(20):
        pace = next_pace(pace, BLOCKS, behind=0, taken=10, waited=0.1)
    assert pace.max_age(BLOCKS) < BLOCKS.max_age


def test_one_slow_insert_does_not_make_rows_old() -> None:
    pace = next_pace(Pace(waited=0.1), BLOCKS, behind=0, taken=10, waited=20.0)
    assert pace.max_age(BLOCKS) < 2


def test_however_slow_inserts_are_rows_stay_as_fresh_as_was_configured_within_reason() -> None:
    stuck = Pace(waited=100.0)
    assert stuck.max_age(Blocks(max_age=0.2)) == 0.4
    assert stuck.max_age(BLOCKS) == 2
    assert stuck.max_age(Blocks(max_age=30)) == 2, "the configured age is the longer one"


def test_the_first_round_of_a_lease_follows_no_other_and_reports_nothing_of_inserts() -> None:
    pace = next_pace(Pace(2, waited=0.4), BLOCKS, behind=5_000, taken=10_000, waited=None)
    assert pace == Pace(2, waited=0.4)


def test_blocks_shrink_step_by_step_once_caught_up() -> None:
    pace = Pace(4)
    pace = next_pace(pace, BLOCKS, behind=0, taken=10_000, waited=0.1)
    assert pace.factor == 2
    pace = next_pace(pace, BLOCKS, behind=0, taken=10_000, waited=0.1)
    assert pace.factor == 1
    assert pace.max_age(BLOCKS) < BLOCKS.max_age


def test_a_stream_that_was_behind_catches_up_until_it_has_read_all() -> None:
    pace = next_pace(Pace(), BLOCKS, behind=25_000, taken=10_000, waited=0.1)
    assert pace.catching_up
    pace = next_pace(pace, BLOCKS, behind=5_000, taken=20_000, waited=0.1)
    assert (pace.catching_up, pace.max_age(BLOCKS)) == (True, 10.0)
    pace = next_pace(pace, BLOCKS, behind=50, taken=5_000, waited=0.1)
    assert not pace.catching_up, "what came while the round was read"
    assert pace.max_age(BLOCKS) < BLOCKS.max_age


def test_a_round_that_took_nothing_has_not_caught_up() -> None:
    # given a stream that was behind when it was taken over, whose broker has not answered yet
    pace = next_pace(Pace(catching_up=True), BLOCKS, behind=0, taken=0, waited=0.1)
    # then what it hears first is not gathered until it is of age
    assert pace.catching_up
    assert not next_pace(pace, BLOCKS, behind=0, taken=5_000, waited=0.1).catching_up


def test_blocks_that_may_not_grow_are_filled_all_the_same_while_the_stream_is_behind() -> None:
    fixed = Blocks(grow_to_bytes=BLOCKS.max_bytes)
    pace = next_pace(Pace(), fixed, behind=1_000_000, taken=10_000, waited=0.1)
    assert (pace.max_bytes(fixed), pace.max_rows(fixed)) == (fixed.max_bytes, fixed.max_rows)
    assert pace.max_age(BLOCKS) == 10.0


def test_rows_stay_below_the_servers_squashing_limit() -> None:
    assert Pace(64).max_rows(BLOCKS) == 1_048_575


def test_many_streams_share_what_grown_blocks_may_hold_and_never_fall_below_the_configured_size() -> None:
    grown = Pace(64, catching_up=True)
    assert [grown.max_bytes(BLOCKS, streams) >> 20 for streams in (1, 2, 4, 8, 100)] == [64, 64, 32, 16, 10]
