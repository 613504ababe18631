"""Old intents: which rows of a block are stored, decided without guessing."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blockhouse_aggregator.clickhouse.presence import Absent, Ambiguous, Complete, Partial, StoredRows, decide

BLOCK = {7: 2, 9: 1}  # offset 7 has two rows, offset 9 one


def numbered(rows: dict[int, tuple[int, ...]]) -> StoredRows:
    return StoredRows({offset: len(found) for offset, found in rows.items()}, rows)


def test_nothing_stored_is_absent() -> None:
    assert decide(BLOCK, numbered({})) == Absent()
    assert decide(BLOCK, StoredRows({})) == Absent()


def test_every_row_stored_is_complete() -> None:
    assert decide(BLOCK, numbered({7: (0, 1), 9: (0,)})) == Complete()
    assert decide(BLOCK, StoredRows({7: 2, 9: 1})) == Complete()


def test_some_rows_stored_is_partial_with_exactly_the_missing_ones_in_block_order() -> None:
    assert decide(BLOCK, numbered({7: (1,)})) == Partial(((7, 0), (9, 0)))
    assert decide(BLOCK, StoredRows({7: 2})) == Partial(((9, 0),))


def test_half_a_message_without_row_numbers_is_for_a_person_to_decide() -> None:
    assert decide(BLOCK, StoredRows({7: 1})) == Ambiguous((7,))


def test_duplicates_and_foreign_rows_are_reported_beside_the_answer() -> None:
    assert decide(BLOCK, StoredRows({7: 3, 9: 1, 8: 4})) == Complete({7: 1, 8: 4})
    assert decide(BLOCK, numbered({7: (0, 1, 1), 9: (0, 5)})) == Complete({7: 1, 9: 1})


def test_a_duplicate_row_never_stands_for_a_missing_one() -> None:
    assert decide(BLOCK, numbered({7: (0, 0), 9: (0,)})) == Partial(((7, 1),), {7: 1})


blocks = st.dictionaries(st.integers(0, 50), st.integers(1, 4), min_size=1)


@given(blocks, st.data())
def test_what_is_stored_and_what_is_missing_always_make_the_block(block: dict[int, int], data: st.DataObject) -> None:
    every = [(offset, row) for offset, rows in block.items() for row in range(rows)]
    held = data.draw(st.sets(st.sampled_from(every)))
    rows: dict[int, tuple[int, ...]] = {}
    for offset, row in sorted(held):
        rows[offset] = (*rows.get(offset, ()), row)

    answer = decide(block, numbered(rows))

    if isinstance(answer, Partial):
        assert held | set(answer.missing) == set(every)
        assert not held & set(answer.missing)
    else:
        assert isinstance(answer, Complete if held else Absent)
    assert not answer.surplus


def test_rows_that_name_a_topic_and_rows_that_name_none_answer_together() -> None:
    both = numbered({7: (0,), 8: (0, 1)}).and_those_of(numbered({7: (1,), 9: (0,)}))
    assert (both.counts, both.rows) == ({7: 2, 8: 2, 9: 1}, {7: (0, 1), 8: (0, 1), 9: (0,)})
    assert StoredRows({7: 1}).and_those_of(StoredRows({7: 1})) == StoredRows({7: 2})
