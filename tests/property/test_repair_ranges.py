"""The range arithmetic of a repair: every message is judged once, and pieces cover what is missing and nothing else."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from blockhouse_aggregator.audit.compare import Produced
from blockhouse_aggregator.clickhouse.presence import StoredRows
from blockhouse_aggregator.repair.judging import Judged, Verdict, cut, joined, judge, runs

MESSAGES = st.dictionaries(st.integers(0, 60), st.integers(0, 4), max_size=40)
OFFSETS = st.frozensets(st.integers(0, 60))


@st.composite
def ranges(draw: st.DrawFn) -> tuple[dict[int, int], dict[int, tuple[int, ...]], frozenset[int], int]:
    """Rows by offset of the messages, stored row numbers by offset, dead letters, and where the table is done."""
    messages = dict(sorted(draw(MESSAGES).items()))
    held = (
        draw(st.dictionaries(st.sampled_from(sorted(messages)), st.frozensets(st.integers(0, 4)))) if messages else {}
    )
    stored = {offset: tuple(rows) for offset, rows in held.items() if rows}
    return messages, stored, draw(OFFSETS), draw(st.integers(0, 61))


def judged(
    messages: dict[int, int], stored: dict[int, tuple[int, ...]], dead: frozenset[int], done: int, *, numbered: bool
) -> Judged:
    sent = Produced(np.array([*messages], np.int64), np.array([*messages.values()], np.int64))
    found = StoredRows({o: len(r) for o, r in stored.items()}, stored if numbered else None)
    return judge(sent, found, np.array(sorted(dead), np.int64), done)


@given(ranges(), st.booleans())
def test_a_message_is_missing_only_if_nothing_else_accounts_for_its_rows(
    world: tuple[dict[int, int], dict[int, tuple[int, ...]], frozenset[int], int], numbered: bool
) -> None:
    messages, stored, dead, done = world
    found = judged(*world, numbered=numbered)
    assert found.offsets.tolist() == [*messages]
    for offset, lacking, verdict in zip(found.offsets.tolist(), found.lacking, found.verdicts, strict=True):
        there = set(stored.get(offset, ()))
        absent = set(range(messages[offset])) - there if numbered else set(range(0 if there else messages[offset]))
        accounted = offset >= done or (offset in dead and offset not in stored)
        unclear = not numbered and 0 < len(there) < messages[offset]
        assert (verdict == Verdict.MISSING) == (bool(absent) and not accounted and not unclear)
        if verdict == Verdict.MISSING:
            assert lacking == len(absent)


@given(ranges(), st.integers(1, 9), st.integers(1, 5))
def test_pieces_are_the_missing_messages_in_order_each_once_and_never_across_another(
    world: tuple[dict[int, int], dict[int, tuple[int, ...]], frozenset[int], int], rows: int, count: int
) -> None:
    messages = world[0]
    found = judged(*world, numbered=True)
    missing = [int(o) for o, v in zip(found.offsets, found.verdicts, strict=True) if v == Verdict.MISSING]
    pieces = list(cut(found, rows, count))
    assert [offset for piece in pieces for offset in piece] == missing
    for piece in pieces:
        assert [offset for offset in messages if piece[0] <= offset <= piece[-1]] == list(piece)
        assert len(piece) == 1 or (sum(messages[o] for o in piece) <= rows and len(piece) <= count)


@given(st.lists(st.tuples(st.integers(1, 5), st.booleans(), st.integers(0, 9))))
def test_runs_partition_what_is_chosen(steps: list[tuple[int, bool, int]]) -> None:
    offsets = np.cumsum([gap for gap, _, _ in steps], dtype=np.int64)
    chosen = np.array([taken for _, taken, _ in steps], np.bool_)
    rows = np.array([count for _, _, count in steps], np.int64)
    found = runs(offsets, rows, chosen)
    inside = [o for run in found for o in offsets.tolist() if run.begin <= o < run.end]
    assert inside == offsets[chosen].tolist()
    assert sum(run.messages for run in found) == len(inside)
    assert sum(run.rows for run in found) == int(rows[chosen].sum())
    for before, after in pairwise(found):
        assert any(before.end <= o < after.begin for o in offsets.tolist()), "two runs that should be one"


@given(ranges(), st.integers(0, 61))
def test_how_the_range_is_cut_into_portions_does_not_show(
    world: tuple[dict[int, int], dict[int, tuple[int, ...]], frozenset[int], int], at: int
) -> None:
    messages, stored, dead, done = world
    parts = [
        judged(
            {o: n for o, n in messages.items() if (o < at) is below},
            {o: n for o, n in stored.items() if (o < at) is below},
            dead,
            done,
            numbered=True,
        )
        for below in (True, False)
    ]
    whole = judged(*world, numbered=True)
    for verdict in Verdict:
        assert joined(parts).runs(verdict) == whole.runs(verdict)
