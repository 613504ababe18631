"""The comparison finds every lost, doubled and foreign row, and nothing where all is well."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from blockhouse_aggregator.audit.compare import Example, Ints, Produced, Stored, compare, still_dead

Rows = list[tuple[int, int]]
"""(offset, row number) of each stored row."""


def ints(*values: int) -> Ints:
    return np.array(values, np.int64)


def produced(messages: dict[int, int]) -> Produced:
    """From offset -> number of rows."""
    return Produced(ints(*sorted(messages)), ints(*(messages[offset] for offset in sorted(messages))))


def stored(rows: Rows, *, numbered: bool = True) -> Stored:
    """As a replica that holds `rows` answers."""
    offsets = sorted({offset for offset, _ in rows}, reverse=True)
    numbers = {offset: [row for at, row in rows if at == offset] for offset in offsets}
    counts = ints(*(len(numbers[offset]) for offset in offsets))
    if not numbered:
        return Stored(ints(*offsets), counts)
    distinct = ints(*(len(set(numbers[offset])) for offset in offsets))
    return Stored(ints(*offsets), counts, distinct, ints(*(max(numbers[offset]) for offset in offsets)))


def every_row(messages: dict[int, int]) -> Rows:
    return [(offset, row) for offset, rows in messages.items() for row in range(rows)]


MESSAGES = {5: 2, 6: 1, 9: 3}


@pytest.mark.parametrize("numbered", [True, False])
def test_every_row_once_is_exact(numbered: bool) -> None:
    found = compare(produced(MESSAGES), stored(every_row(MESSAGES), numbered=numbered))

    assert found.exact
    assert found.stored == 6
    assert found.examples == ()


@pytest.mark.parametrize("numbered", [True, False])
def test_a_lost_row_is_missing(numbered: bool) -> None:
    found = compare(produced(MESSAGES), stored(every_row(MESSAGES)[:-1], numbered=numbered))

    assert (found.missing, found.duplicates, found.unexpected) == (1, 0, 0)
    assert [(e.offset, e.expected, e.stored) for e in found.examples] == [(9, 3, 2)]


@pytest.mark.parametrize("numbered", [True, False])
def test_a_row_stored_twice_is_a_duplicate(numbered: bool) -> None:
    found = compare(produced(MESSAGES), stored([*every_row(MESSAGES), (5, 1)], numbered=numbered))

    assert (found.missing, found.duplicates, found.unexpected) == (0, 1, 0)


@pytest.mark.parametrize("numbered", [True, False])
def test_a_row_of_no_message_is_unexpected(numbered: bool) -> None:
    found = compare(produced(MESSAGES), stored([*every_row(MESSAGES), (7, 0)], numbered=numbered))

    assert (found.missing, found.duplicates, found.unexpected) == (0, 0, 1)


def test_row_numbers_show_a_loss_that_a_duplicate_hides() -> None:
    rows = [(5, 0), (5, 0), (6, 0), (9, 0), (9, 1), (9, 2)]

    found = compare(produced(MESSAGES), stored(rows))

    assert (found.missing, found.duplicates, found.unexpected) == (1, 1, 0)
    assert found.examples == (Example(5, expected=2, stored=2, numbered=1),)


def test_a_row_number_that_the_message_does_not_have_is_unexpected() -> None:
    rows = [(5, 0), (5, 7), (6, 0), (9, 0), (9, 1), (9, 2)]

    found = compare(produced(MESSAGES), stored(rows))

    assert (found.missing, found.duplicates, found.unexpected) == (1, 0, 1)


def test_a_dead_letter_must_not_be_stored() -> None:
    expected = produced(MESSAGES).without(ints(9))

    assert compare(expected, stored([(5, 0), (5, 1), (6, 0)])).exact
    assert compare(expected, stored(every_row(MESSAGES))).unexpected == 3


def test_nothing_stored_of_nothing_produced_is_exact() -> None:
    assert compare(produced({}), stored([])).exact


def test_only_the_first_offenders_are_named() -> None:
    found = compare(produced(dict.fromkeys(range(100), 1)), stored([]), examples=3)

    assert found.missing == 100
    assert [example.offset for example in found.examples] == [0, 1, 2]


def test_rows_below_the_promised_offset_are_lost_and_those_above_wait() -> None:
    found = compare(produced(MESSAGES), stored([(9, 0)]), promised=6)

    assert (found.missing, found.waiting) == (5, 3)
    assert [(example.offset, example.waits) for example in found.examples] == [(5, False), (6, True), (9, True)]
    assert compare(produced(MESSAGES), stored([]), promised=0).waiting == 6
    assert compare(produced(MESSAGES), stored([])).waiting == 0, "without a promise nothing is excused"


def test_what_is_wrong_now_does_not_wait() -> None:
    found = compare(produced(MESSAGES), stored([(5, 0), (5, 0), (6, 7)]), promised=0)

    assert [(e.offset, e.waits) for e in found.examples] == [(5, False), (6, False), (9, True)]
    assert [e.offset for e in compare(produced(MESSAGES), stored([]), examples=1, promised=6).examples] == [5]


@given(
    st.dictionaries(st.integers(0, 30), st.integers(0, 4), max_size=12),
    st.lists(st.tuples(st.integers(0, 30), st.integers(0, 3)), max_size=40),
)
def test_exact_means_the_same_rows(messages: dict[int, int], rows: Rows) -> None:
    found = compare(produced(messages), stored(rows))

    assert found.exact == (Counter(rows) == Counter(every_row(messages)))
    assert found.stored == len(rows)
    assert found.stored + found.missing - found.duplicates - found.unexpected == sum(messages.values())


@given(st.dictionaries(st.integers(0, 30), st.integers(1, 4), max_size=12), st.data())
def test_lost_and_doubled_rows_are_counted_one_by_one(messages: dict[int, int], data: st.DataObject) -> None:
    all_rows = every_row(messages)
    times = [data.draw(st.integers(0, 3)) for _ in all_rows]

    found = compare(produced(messages), stored([row for row, n in zip(all_rows, times, strict=True) for _ in range(n)]))

    assert found.missing == times.count(0)
    assert found.duplicates == sum(max(0, n - 1) for n in times)
    assert found.unexpected == 0


def test_a_dead_letter_whose_rows_are_stored_was_loaded_after_all() -> None:
    there = stored(every_row({5: 2, 9: 2}))
    live = produced(MESSAGES).without(still_dead(ints(5, 6, 9), there))
    assert list(live.rows) == [2, 0, 3], "6 is dead, 9 has to be there whole"
    assert (compare(live, there).missing, compare(live, there).unexpected) == (1, 0)
