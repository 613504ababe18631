"""What became of each message of a range, from what log, table and dead-letter topic show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window
from blockhouse_aggregator.audit.compare import Ints, Produced
from blockhouse_aggregator.clickhouse.presence import StoredRows
from blockhouse_aggregator.repair.judging import Judged, Run, Verdict, cut, done_below, joined, judge, not_known

FAR = 1 << 40


def ints(*values: int) -> Ints:
    return np.array(values, np.int64)


def produced(messages: Mapping[int, int]) -> Produced:
    """Rows by offset."""
    return Produced(ints(*messages), ints(*messages.values()))


def stored(rows: Mapping[int, Sequence[int]]) -> StoredRows:
    """Row numbers by offset."""
    return StoredRows({o: len(r) for o, r in rows.items()}, {o: tuple(r) for o, r in rows.items()})


def verdicts(judged: Judged) -> dict[int, Verdict]:
    return {int(o): Verdict(int(v)) for o, v in zip(judged.offsets, judged.verdicts, strict=True)}


def test_what_provenance_does_not_find_is_missing() -> None:
    found = judge(produced({3: 2, 5: 2, 9: 2}), stored({3: (0, 1), 5: (1,)}), ints(), FAR)
    assert verdicts(found) == {3: Verdict.LOADED, 5: Verdict.MISSING, 9: Verdict.MISSING}
    assert found.runs(Verdict.MISSING) == (Run(5, 10, 2, 3),)


def test_a_message_of_no_row_lacks_none() -> None:
    found = judge(produced({3: 0, 4: 1}), stored({}), ints(), FAR)
    assert verdicts(found) == {3: Verdict.LOADED, 4: Verdict.MISSING}


def test_without_row_numbers_a_part_of_a_message_is_beyond_judgement_and_the_rest_is_judged() -> None:
    found = judge(produced({3: 2, 5: 2, 9: 2}), StoredRows({3: 1, 5: 2}), ints(), FAR)
    assert verdicts(found) == {3: Verdict.AMBIGUOUS, 5: Verdict.LOADED, 9: Verdict.MISSING}


def test_a_dead_letter_is_not_missing_and_one_whose_rows_are_stored_is_loaded() -> None:
    found = judge(produced({3: 1, 5: 2, 6: 1}), stored({5: (0,)}), ints(3, 5), FAR)
    assert verdicts(found) == {3: Verdict.DEAD, 5: Verdict.MISSING, 6: Verdict.MISSING}
    whole = judge(produced({5: 2}), stored({5: (0, 1)}), ints(5), FAR)
    assert verdicts(whole) == {5: Verdict.LOADED}


def test_nothing_is_missing_from_where_the_owner_is_not_done() -> None:
    found = judge(produced({3: 1, 5: 1, 6: 1}), stored({}), ints(), 5)
    assert verdicts(found) == {3: Verdict.MISSING, 5: Verdict.NOT_DONE, 6: Verdict.NOT_DONE}


def test_rows_beyond_the_expected_are_counted_and_do_not_make_another_message_loaded() -> None:
    found = judge(produced({3: 1, 5: 1}), stored({3: (0, 0, 7)}), ints(), FAR)
    assert found.surplus == 2
    assert verdicts(found) == {3: Verdict.LOADED, 5: Verdict.MISSING}


def test_what_a_table_does_not_show_is_never_missing() -> None:
    assert not not_known(produced({3: 1})).count(Verdict.MISSING)
    doubted = judge(produced({3: 1, 5: 1}), stored({3: (0,)}), ints(), FAR).doubted(Verdict.REMOVED)
    assert verdicts(doubted) == {3: Verdict.LOADED, 5: Verdict.REMOVED}


def test_blocks_hold_messages_that_follow_each_other_and_nothing_between_them() -> None:
    """A dead letter between two missing messages ends a block: it must not be loaded along with them."""
    messages = {3: 2, 5: 2, 6: 1, 8: 2, 9: 2}
    found = judge(produced(messages), stored({}), ints(6), FAR)
    assert list(cut(found, 100, 100)) == [(3, 5), (8, 9)]
    assert list(cut(found, 3, 100)) == [(3,), (5,), (8,), (9,)]
    assert list(cut(found, 100, 1)) == [(3,), (5,), (8,), (9,)]


def test_a_run_continues_over_the_end_of_a_portion() -> None:
    first = judge(produced({3: 1, 4: 1}), stored({3: (0,)}), ints(), FAR)
    second = judge(produced({7: 1, 9: 1}), stored({9: (0,)}), ints(), FAR)
    assert joined([first, second]).runs(Verdict.MISSING) == (Run(4, 8, 2, 2),)


def metadata(*entries: TableEntry) -> Metadata:
    return Metadata("r1", 7, 0, "id", 0, 100, Window(reference=100), entries)


def test_a_table_is_done_up_to_its_block_in_flight_its_cursor_or_the_position() -> None:
    flying = TableEntry(2, InFlight(40, 60, 3, 1, 0, 0))
    lagging = TableEntry(3, cursor=30, pending=5)
    both = TableEntry(4, InFlight(20, 25, 3, 1, 0, 0), cursor=70, pending=1)
    found = metadata(flying, lagging, both)
    assert [done_below(found, table) for table in (1, 2, 3, 4)] == [100, 40, 30, 20]
