"""What holds for every audit of a mirror: it finds each fault, and takes nothing else for one."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from blockhouse_mirror.audit.compare import Compacted, Records, compare
from tests.unit.mirror.auditing import made

logs = st.lists(st.integers(0, 12), max_size=15)


@given(st.sets(st.integers(0, 12)), logs, st.integers(0, 6), st.integers(6, 13))
def test_an_audit_is_exact_for_equal_logs_alone_and_counts_each_fault(
    source: set[int], target: list[int], begin: int, end: int
) -> None:
    found = compare("t", 0, made(sorted(source)), made(target), begin, end)

    expected = [offset for offset in sorted(source) if begin <= offset < end]
    there = [offset for offset in target if begin <= offset < end]
    counts = Counter(there)
    assert found.exact == (expected == there)
    assert found.missing.tolist() == [offset for offset in expected if offset not in counts]
    assert found.doubled.tolist() == sorted(offset for offset, count in counts.items() if count > 1)
    assert found.strange.tolist() == sorted(offset for offset in counts if offset not in expected)
    assert found.lossless == (set(expected) <= set(there))


@given(
    st.lists(st.tuples(st.integers(0, 3), st.booleans()), max_size=12),
    st.sets(st.integers(0, 11)),
    st.sets(st.integers(0, 11)),
    st.integers(0, 12),
)
def test_an_audit_of_survivors_misses_no_last_record_of_a_key_and_accuses_no_compaction(
    log: list[tuple[int, bool]], at_source: set[int], at_target: set[int], lost: int
) -> None:
    """Compaction may take from either end whatever has a later record of its key, and then null values that are the
    last of theirs."""
    later = [any(key == other for other, _ in log[offset + 1 :]) for offset, (key, _) in enumerate(log)]

    def survivors(taken: set[int], without: int = -1) -> list[int]:
        def stays(offset: int) -> bool:
            before = {other for other in range(offset) if log[other][0] == log[offset][0]}
            return not (offset in taken and (later[offset] or (log[offset][1] and before <= taken)))

        return [offset for offset in range(len(log)) if offset != without and stays(offset)]

    def records(offsets: list[int]) -> Records:
        fleeting = [offset for offset in offsets if log[offset][1]]
        return made(offsets, (), (), [log[offset][0] for offset in offsets], fleeting)

    source, target = records(survivors(at_source)), records(survivors(at_target))
    assert compare("t", 0, source, target, 0, 12, compacted=Compacted(True, True)).exact

    if lost < len(log) and not later[lost] and not log[lost][1]:
        found = compare("t", 0, source, records(survivors(at_target, lost)), 0, 12, compacted=Compacted(True, True))
        assert found.missing.tolist() == [lost]
