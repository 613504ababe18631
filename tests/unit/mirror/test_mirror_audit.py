"""The judge of a mirror: each fault is found, by its kind, and nothing else is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from blockhouse.config.load import parse_as
from blockhouse.config.mirror import MirrorConfig
from blockhouse.placement.model import TopicPartition
from blockhouse_mirror.audit import judge
from blockhouse_mirror.audit.compare import BROKERS_TIME, Compacted, PartitionAudit, Records, compare
from blockhouse_mirror.audit.reading import digest, moment
from blockhouse_mirror.commands.view import audit_line
from blockhouse_mirror.kafka.bounds import Bounds
from blockhouse_mirror.protocol.position import Position
from blockhouse_mirror.protocol.provenance import HEADER, origin_format
from tests.unit.mirror.auditing import made
from tests.unit.mirror.driving import Limits

CONFIG = parse_as(
    MirrorConfig,
    "name: m\nsource: {name: a, bootstrapServers: 'a:9092'}\ntarget: {name: b, bootstrapServers: 'b:9092'}\n",
)


def records(*offsets: int, changed: tuple[int, ...] = ()) -> Records:
    digests = [offset * 7 + 1 + 1_000 * (offset in changed) for offset in offsets]
    return made(offsets, digests)


def audited(source: Records, target: Records, begin: int = 0, end: int = 100) -> PartitionAudit:
    return compare("t", 3, source, target, begin, end)


def faults(found: PartitionAudit) -> dict[str, list[int]]:
    return {kind: offsets.tolist() for kind, offsets in found.faults.items() if offsets.size}


def test_equal_logs_are_exact() -> None:
    found = audited(records(1, 2, 5), records(1, 2, 5))

    assert (found.exact, found.lossless, found.compared, faults(found)) == (True, True, 3, {})


def test_nothing_of_nothing_is_exact() -> None:
    assert audited(records(), records()).exact


@pytest.mark.parametrize(
    ("target", "expected", "lossless"),
    [
        (records(1, 5), {"missing": [2]}, False),
        (records(1, 2, 2, 5), {"doubled": [2]}, True),
        (records(1, 2, 5, changed=(2,)), {"changed": [2]}, False),
        (records(1, 2, 3, 5), {"strange": [3]}, True),
    ],
)
def test_each_fault_is_found_by_its_kind(target: Records, expected: dict[str, list[int]], lossless: bool) -> None:
    found = audited(records(1, 2, 5), target)

    assert faults(found) == expected
    assert (found.exact, found.lossless, found.reordered) == (False, lossless, 0)


def test_records_out_of_order_are_counted() -> None:
    found = audited(records(1, 2, 5), records(2, 1, 5))

    assert (found.reordered, found.exact, found.lossless) == (1, False, True)


def test_copies_do_not_count_as_out_of_order_as_well() -> None:
    assert audited(records(1, 2, 3), records(1, 2, 1, 2, 3)).reordered == 0


def test_a_copy_that_differs_from_the_first_one_is_doubled() -> None:
    target = made([1, 1], [8, 9])

    assert faults(audited(records(1), target)) == {"doubled": [1]}


def test_only_what_is_between_begin_and_end_is_judged() -> None:
    found = audited(records(1, 2, 5, 9), records(0, 2, 5, 9, 9), begin=2, end=9)

    assert (found.exact, found.compared) == (True, 2)


def test_a_line_of_json_has_every_offset() -> None:
    line = audit_line(audited(records(1, 2, 5), records(5, 1, 1)))

    assert line == {
        "topic": "t",
        "partition": 3,
        "compared": 3,
        "missing": [2],
        "doubled": [1],
        "changed": [],
        "strange": [],
        "reordered": 1,
        "refused": [],
        "judged": "every record",
        "exact": False,
    }


def test_what_has_a_dead_letter_is_refused_and_not_missing() -> None:
    source = records(1, 2, 5)

    found = compare("t", 3, source, records(1), 0, 100, letters={2, 1, 9})

    assert (found.refused.tolist(), found.missing.tolist()) == ([2], [5])
    assert found.judged == "every record, 1 refused"
    assert compare("t", 3, source, records(1, 5), 0, 100, letters={2}).exact


# --- reading ----------------------------------------------------------------------------------------------------


class Message:
    def __init__(
        self,
        offset: int = 0,
        key: bytes | None = b"k",
        value: bytes | None = b"v",
        headers: Any = None,
        timestamp: tuple[int, int] = (1, 5),
    ) -> None:
        self.parts = offset, key, value, headers, timestamp

    def offset(self) -> int:
        return int(self.parts[0])

    def key(self) -> bytes | None:
        return self.parts[1]

    def value(self) -> bytes | None:
        return self.parts[2]

    def headers(self) -> Any:
        return self.parts[3]

    def timestamp(self) -> tuple[int, int]:
        return self.parts[4]


HOP = (HEADER, origin_format("A", "t-id", 0) % 4)


def test_the_header_of_a_mirror_changes_no_digest() -> None:
    assert digest(Message(headers=[("x", b"1"), HOP])) == digest(Message(headers=[("x", b"1")]))
    assert digest(Message(headers=[HOP])) == digest(Message())


@pytest.mark.parametrize(
    "other",
    [
        Message(key=None),
        Message(key=b""),
        Message(value=None),
        Message(value=b""),
        Message(key=b"kv", value=b""),
        Message(headers=[("x", None)]),
        Message(headers=[("x", b"")]),
        Message(headers=[("x", b"1"), ("y", b"2")]),
        Message(headers=[("y", b"2"), ("x", b"1")]),
    ],
)
def test_every_part_of_a_record_counts(other: Message) -> None:
    assert digest(other) != digest(Message())


def test_a_null_is_not_a_text_that_looks_like_one() -> None:
    assert digest(Message(key=b"-", value=None)) != digest(Message(key=None, value=b"-"))


def test_the_time_of_a_broker_is_what_a_mirror_passes_on_and_no_target_can_be_judged_by() -> None:
    assert [moment(Message(timestamp=(kind, 5)), kept=True) for kind in (1, 2)] == [5, 5]
    assert [moment(Message(timestamp=(kind, 5)), kept=False) for kind in (1, 2)] == [5, BROKERS_TIME]


# --- one partition ----------------------------------------------------------------------------------------------

POSITION = Position("A", "t-id", 2, 6, -1, "u-id", 9)
KEY = TopicPartition("t", 0)


def mirrored(offset: int, topic_id: str = "t-id", cluster: str = "A", partition: int = 0) -> Message:
    return Message(headers=[(HEADER, origin_format(cluster, topic_id, partition) % offset)])


def judged(
    monkeypatch: pytest.MonkeyPatch,
    source: list[Message],
    target: list[Message],
    source_bounds: Bounds = Bounds(0, 10),
    target_bounds: Bounds = Bounds(0, 10),
) -> PartitionAudit:
    def read(cluster: Any, key: Any, end: int, offset_of: Callable[[Any], int | None], *, times_kept: bool) -> Records:
        messages = source if cluster.name == "a" else target
        offsets = [offset for each in messages if (offset := offset_of(each)) is not None]
        return made(offsets)

    monkeypatch.setattr(judge, "read", read)
    return judge._partition(CONFIG, "B", KEY, POSITION, KEY, source_bounds, target_bounds, Compacted(), ())


def test_a_partition_is_judged_from_where_the_mirror_began_to_its_position(monkeypatch: pytest.MonkeyPatch) -> None:
    source = [Message(offset) for offset in range(6)]
    target = [mirrored(offset) for offset in (2, 3, 4, 5, 6, 7)]

    found = judged(monkeypatch, source, target)

    assert (found.exact, found.compared) == (True, 4)


def test_what_came_from_the_target_is_not_missing_there(monkeypatch: pytest.MonkeyPatch) -> None:
    back = Message(3, headers=[(HEADER, origin_format("B", "x", 0) % 1)])
    source = [Message(2), back, Message(4), Message(5)]

    assert judged(monkeypatch, source, [mirrored(offset) for offset in (2, 4, 5)]).exact


def test_records_of_others_on_the_target_are_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    others = [Message(3), mirrored(3, topic_id="older"), mirrored(3, cluster="C"), mirrored(3, partition=1)]
    target = [*others, *(mirrored(offset) for offset in (2, 3, 4, 5))]

    assert judged(monkeypatch, [Message(offset) for offset in range(2, 6)], target).exact


def test_what_retention_has_taken_at_either_end_is_not_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    source = [Message(offset) for offset in (4, 5)]
    target = [mirrored(offset) for offset in (2, 3, 4, 5)]
    assert judged(monkeypatch, source, target, source_bounds=Bounds(4, 10)).exact, "of the source"

    found = judged(monkeypatch, [Message(o) for o in range(2, 6)], target[2:], target_bounds=Bounds(7, 10))
    assert (found.exact, found.compared) == (True, 2), "of the target"


def test_where_retention_has_taken_all_copies_nothing_is_judged(monkeypatch: pytest.MonkeyPatch) -> None:
    found = judged(monkeypatch, [Message(o) for o in range(2, 6)], [], target_bounds=Bounds(10, 10))

    assert (found.exact, found.compared) == (True, 0)
    assert not judged(monkeypatch, [Message(o) for o in range(2, 6)], []).exact, "it never had any"


def test_letters_are_found_by_the_origin_they_state(monkeypatch: pytest.MonkeyPatch) -> None:
    at = TopicPartition("km-m-dead-letters", 0)
    inside = [mirrored(3), Message(headers=[("x", b"y")]), mirrored(4, topic_id="older"), mirrored(5, partition=1)]

    def read(cluster: Any, key: Any, end: int, note: Callable[[Any], None], *, times_kept: bool) -> None:
        assert (cluster.name, key, end) == ("b", at, 10)
        for each in inside:
            note(each)

    monkeypatch.setattr(judge, "read", read)
    monkeypatch.setattr(judge, "LogBounds", lambda _: Limits({at: Bounds(0, 10)}))

    found = judge._letters(CONFIG, [at])

    assert found == {("A", "t-id", 0): {3}, ("A", "older", 0): {4}, ("A", "t-id", 1): {5}}
