"""The judge of a mirror where compaction took records, or a broker replaced timestamps."""

from __future__ import annotations

from blockhouse_mirror.audit.compare import BROKERS_TIME, Compacted, PartitionAudit, Records, compare
from tests.unit.mirror.auditing import made
from tests.unit.mirror.test_mirror_audit import audited, faults


def compacted(
    source: Records, target: Records, *, at_source: bool = True, at_target: bool = True, end: int = 100
) -> PartitionAudit:
    return compare("t", 3, source, target, 0, end, compacted=Compacted(at_source, at_target))


def keyed(*records: tuple[int, int], changed: tuple[int, ...] = (), fleeting: tuple[int, ...] = ()) -> Records:
    """Records as (offset, key)."""
    offsets, keys = [offset for offset, _ in records], [key for _, key in records]
    return made(offsets, [offset * 7 + (offset in changed) for offset in offsets], (), keys, fleeting)


def test_what_compaction_took_at_either_end_is_no_fault() -> None:
    found = compacted(keyed((1, 8), (2, 9), (4, 8), (5, 9)), keyed((3, 9), (4, 8), (5, 9)))

    assert (found.exact, found.judged) == (True, "survivors"), "1 and 2 at the target, 3 at the source"


def test_the_last_record_of_a_key_has_to_be_there() -> None:
    found = compacted(keyed((1, 8), (2, 9), (4, 8)), keyed((1, 8), (2, 9)))

    assert faults(found) == {"missing": [4]}


def test_a_survivor_that_differs_or_that_the_source_never_had_is_at_fault() -> None:
    source = keyed((1, 8), (4, 8))
    target = keyed((4, 8), (6, 7), changed=(4,))

    assert faults(compacted(source, target)) == {"changed": [4], "strange": [6]}


def test_an_end_that_is_not_compacted_has_lost_nothing_to_compaction() -> None:
    assert faults(compacted(keyed((1, 8), (4, 8)), keyed((4, 8)), at_target=False)) == {"missing": [1]}
    assert faults(compacted(keyed((4, 8)), keyed((1, 8), (4, 8)), at_source=False)) == {"strange": [1]}


def test_a_null_value_may_be_gone_with_all_before_it() -> None:
    tombstone = keyed((1, 8), (4, 8), fleeting=(4,))

    assert compacted(tombstone, keyed()).exact
    assert compacted(keyed(), tombstone).exact


def test_what_is_not_mirrored_yet_supersedes_at_the_source_alone() -> None:
    assert compacted(keyed((9, 8)), keyed((1, 8)), end=5).exact, "the source's compaction knew the later record"
    found = compacted(keyed((1, 8), (9, 8)), keyed(), end=5)
    assert faults(found) == {"missing": [1]}, "the target's could not"


def test_a_letter_counts_where_compaction_could_have_taken_its_record() -> None:
    source = keyed((1, 8), (4, 9), fleeting=(4,))

    found = compare("t", 3, source, keyed((1, 8)), 0, 9, compacted=Compacted(True, True), letters={4})

    assert (found.exact, found.refused.tolist(), found.judged) == (True, [4], "survivors, 1 refused")


def test_timestamps_count_where_the_target_keeps_those_of_the_mirror() -> None:
    source, other = made([1, 2], [1, 2], [10, 20]), made([1, 2], [1, 2], [10, 21])

    assert faults(audited(source, other)) == {"changed": [2]}
    found = audited(source, made([1, 2], [1, 2], [10, BROKERS_TIME]))
    assert (found.exact, found.untimed, found.judged) == (True, 1, "every record, 1 without timestamps")
