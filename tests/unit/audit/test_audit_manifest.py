"""The producer's record: read whole or not at all, compared with Kafka, and believed where retention took the log."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest

from blockhouse.errors import BlockhouseError
from blockhouse_aggregator.audit import manifest
from blockhouse_aggregator.audit.compare import Produced
from blockhouse_aggregator.audit.produced import count_rows
from blockhouse_aggregator.wire.formats import Format
from tests.format_messages import FORMATS, encode, history


def produced(messages: dict[int, int]) -> Produced:
    return Produced(np.array(sorted(messages), np.int64), np.array([messages[o] for o in sorted(messages)], np.int64))


def line(offset: int, rows: int = 1, **changes: object) -> str:
    entry = {"cluster": "a", "topic": "t", "partition": 0, "offset": offset, "table": "db.x", "rows": rows}
    return json.dumps({**entry, "kind": "good", **changes}) + "\n"


def test_good_messages_of_the_topic_are_read_by_table_and_stream(tmp_path: Path) -> None:
    file = tmp_path / "sent.jsonl"
    file.write_text(
        line(7, 3) + line(5, 2) + line(7, 3) + line(1, topic="other") + line(6, kind="no-table") + line(9, cluster="b")
    )

    read = manifest.read_manifest(file, "t")

    assert sorted(read) == [("db.x", "a", 0), ("db.x", "b", 0)]
    assert read["db.x", "a", 0].offsets.tolist() == [5, 7]
    assert read["db.x", "a", 0].rows.tolist() == [2, 3]


@pytest.mark.parametrize("bad", ["{", "[]", '{"topic": "t", "kind": "good"}', line(5)[:-20]])
def test_a_line_that_is_no_entry_is_named(tmp_path: Path, bad: str) -> None:
    file = tmp_path / "sent.jsonl"
    file.write_text(line(4) + bad + "\n")

    with pytest.raises(BlockhouseError, match=r"sent\.jsonl, line 2: not an entry"):
        manifest.read_manifest(file, "t")


def test_messages_that_kafka_lost_or_changed_are_counted() -> None:
    reported, kept = produced({5: 1, 6: 2, 8: 3, 9: 1}), produced({5: 1, 8: 4, 11: 1})

    result = manifest.check([(reported, kept, 0)])

    assert (result.messages, result.lost, result.different) == (4, 2, 1)
    assert not result.exact


def test_what_retention_took_is_not_lost() -> None:
    result = manifest.check([(produced({5: 1, 8: 3}), produced({8: 3}), 7)])

    assert result.exact


def test_below_the_log_the_manifest_names_what_was_produced() -> None:
    whole = manifest.with_expired(produced({8: 3}), produced({5: 1, 8: 3}), 7)

    assert whole.offsets.tolist() == [5, 8]
    assert whole.rows.tolist() == [1, 3]


@pytest.mark.parametrize(
    ("payload", "rows"),
    [
        (b"", 0),
        (b"\x0a\x00", 1),
        (b"\x0a\x02ab\x0a\x00\x0a\x01c", 3),
        (b"\x0a\x05ab", 1),
        (b"\x08\x01", 1),
        (b"\xff", 1),
    ],
    ids=["empty", "empty row", "three rows", "truncated", "another field", "rubbish"],
)
def test_rows_are_counted_and_a_message_never_vanishes(payload: bytes, rows: int) -> None:
    assert count_rows(payload) == rows


@pytest.mark.parametrize("form", FORMATS)
@pytest.mark.parametrize("rows", [0, 1, 3])
def test_rows_of_every_format_are_counted(form: str, rows: int) -> None:
    number = {"long_value": 1} if form == "nucolumnar" else 1
    payload = encode(form, history({"x": "UInt8"}), [{"x": number}] * rows)
    assert count_rows(payload, Format(form)) == rows


@pytest.mark.parametrize(("form", "payload"), [(Format.NUCOLUMNAR, b"\xff"), (Format.NUCOLUMNAR, b"\x22\x00")])
def test_a_message_of_another_format_that_cannot_be_counted_is_one_row(form: Format, payload: bytes) -> None:
    assert count_rows(payload, form) == 1
