"""What producers are given: names they can compile, numbers that never move."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from google.protobuf.descriptor_pb2 import DescriptorProto, FileDescriptorSet

from blockhouse.errors import Permanent
from blockhouse.schema.history import extend
from blockhouse.schema.model import DefaultKind, ServerColumn, TableHistory
from blockhouse.schema.proto import field_names, file_descriptor, render_proto, row_batch_class

EMPTY = TableHistory(id=1, name="db.t")


def history(*columns: tuple[str, str], kind: DefaultKind = DefaultKind.NONE) -> TableHistory:
    return extend(EMPTY, [ServerColumn(name=name, type=type_, default_kind=kind) for name, type_ in columns])


def names(table: TableHistory) -> dict[str, str]:
    assert table.current is not None
    return field_names(table, table.current)


EVERYTHING = history(
    ("id", "UInt64"),
    ("n.a", "Array(Array(UInt8))"),
    ("n.b", "Array(Nullable(String))"),
    ("m", "Map(String, Map(String, UInt8))"),
    ("t", "Tuple(x UInt8, y Array(Tuple(UInt8, String)))"),
    ("e", "Enum8('a' = 1)"),
    ("d", "Decimal(9, 2)"),
    ("_kafka_offset", "UInt64"),
)


def test_names_that_protobuf_could_confuse_get_their_number_and_older_names_stay() -> None:
    before = history(("a.b", "UInt8"), ("a_b", "UInt8"), ("aB", "UInt8"), ("1st", "UInt8"), ("ü", "UInt8"))
    assert names(before) == {"a.b": "a_b", "a_b": "a_b_2", "aB": "aB_3", "1st": "f1st", "ü": "f_"}
    assert before.current is not None
    grown = extend(before, [ServerColumn(name="a-b", type="UInt8"), *before.current.columns])
    assert names(grown) == {**names(before), "a-b": "a_b_6"}


def test_columns_that_no_producer_sends_are_not_in_row() -> None:
    table = extend(
        EMPTY,
        [
            ServerColumn(name="a", type="UInt8"),
            ServerColumn(name="m", type="UInt8", default_kind=DefaultKind.MATERIALIZED, default_expression="a + 1"),
            ServerColumn(name="l", type="UInt8", default_kind=DefaultKind.ALIAS, default_expression="a"),
            ServerColumn(name="_kafka_offset", type="UInt64"),
        ],
    )
    assert names(table) == {"a": "a"}
    assert table.current is not None
    assert [column.name for column in table.current.insertable] == ["a", "_kafka_offset"]


def test_absent_and_zero_are_different() -> None:
    table = history(("a", "UInt8"))
    assert table.current is not None
    batch = row_batch_class(table, table.current)()
    batch.rows.add(a=0)  # type: ignore[attr-defined]
    batch.rows.add()  # type: ignore[attr-defined]
    parsed = type(batch).FromString(batch.SerializeToString())
    assert [row.HasField("a") for row in parsed.rows] == [True, False]  # type: ignore[attr-defined]


def test_the_text_compiles_to_the_same_descriptor(tmp_path: Path) -> None:
    assert EVERYTHING.current is not None
    (tmp_path / "t.proto").write_text(render_proto(EVERYTHING, EVERYTHING.current))
    command = [sys.executable, "-m", "grpc_tools.protoc", f"-I{tmp_path}", f"--descriptor_set_out={tmp_path}/t.pb"]
    subprocess.run([*command, "t.proto"], check=True, cwd=tmp_path)
    compiled = FileDescriptorSet.FromString((tmp_path / "t.pb").read_bytes()).file[0]
    ours = file_descriptor(EVERYTHING, EVERYTHING.current)

    def fields(message: DescriptorProto) -> list[object]:
        own: list[object] = [(f.name, f.number, f.type, f.label, f.proto3_optional) for f in message.field]
        return own + [(nested.name, fields(nested)) for nested in message.nested_type]

    assert compiled.package == ours.package
    assert [fields(message) for message in compiled.message_type] == [fields(message) for message in ours.message_type]


@pytest.mark.parametrize("type_", ["AggregateFunction(sum, UInt64)", "JSON", "Variant(UInt8, String)", "Nothing", "("])
def test_a_type_that_cannot_be_loaded_is_refused_by_name(type_: str) -> None:
    table = history(("good", "UInt8"), ("culprit", type_))
    assert table.current is not None
    with pytest.raises(Permanent, match=r"not supported") as refused:
        row_batch_class(table, table.current)
    assert refused.value.reason == "UnsupportedType"
    assert type_ in str(refused.value)
    assert "table db.t, column culprit" in str(refused.value)
