"""The protobuf messages of format `nucolumnar`, as eBay's open-source producers send them.

Built in memory, and wider than theirs: integers have 64 bits, so that a number which is too large is seen rather than
cut, and strings are bytes, as ClickHouse's are. Lists hold values which may be lists: they are unrolled as deep as the
table's columns, and deeper ones are unknown fields.
"""

from __future__ import annotations

from enum import IntEnum
from functools import cache

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

PACKAGE = "blockhouse.nucolumnar"


class Kind(IntEnum):
    """The fields of a value, by their numbers. NONE: a value without any."""

    NONE = 0
    NULL = 1
    INT = 2
    LONG = 3
    UINT = 4
    ULONG = 5
    DOUBLE = 6
    STRING = 7
    BOOL = 8
    TIMESTAMP = 9
    LIST = 10


_SCALARS = (
    (Kind.NULL, "null_value", FieldDescriptorProto.TYPE_INT64),
    (Kind.INT, "int_value", FieldDescriptorProto.TYPE_INT64),
    (Kind.LONG, "long_value", FieldDescriptorProto.TYPE_INT64),
    (Kind.UINT, "uint_value", FieldDescriptorProto.TYPE_UINT64),
    (Kind.ULONG, "ulong_value", FieldDescriptorProto.TYPE_UINT64),
    (Kind.DOUBLE, "double_value", FieldDescriptorProto.TYPE_DOUBLE),
    (Kind.STRING, "string_value", FieldDescriptorProto.TYPE_BYTES),
    (Kind.BOOL, "bool_value", FieldDescriptorProto.TYPE_BOOL),
)


@cache
def request_class(depth: int) -> type[Message]:
    """`SQLBatchRequest` whose values may be lists of lists of ... `depth` levels deep."""
    file = FileDescriptorProto(name=f"{PACKAGE}.{depth}.proto", package=PACKAGE, syntax="proto3")
    stamp = file.message_type.add(name="TimestampP")
    stamp.field.add(name="milliseconds", number=1, type=FieldDescriptorProto.TYPE_UINT64, label=1)
    for level in range(depth, -1, -1):
        value = file.message_type.add(name=f"ValueP{level}")
        value.oneof_decl.add(name="kind")
        for kind, name, type_ in _SCALARS:
            value.field.add(name=name, number=kind, type=type_, label=1, oneof_index=0)
        _message(value, "timestamp", Kind.TIMESTAMP, "TimestampP", oneof=True)
        if level < depth:
            _message(file.message_type.add(name=f"ListValueP{level}"), "value", 1, f"ValueP{level + 1}", repeated=True)
            _message(value, "list_value", Kind.LIST, f"ListValueP{level}", oneof=True)
    _message(file.message_type.add(name="DataBindingList"), "values", 1, "ValueP0", repeated=True)
    bindings = file.message_type.add(name="SqlWithBatchBindings")
    bindings.field.add(name="sql", number=1, type=FieldDescriptorProto.TYPE_BYTES, label=1)
    _message(bindings, "batch_bindings", 2, "DataBindingList", repeated=True)
    block = file.message_type.add(name="ClickHouseNativeBlock")
    block.field.add(name="block", number=1, type=FieldDescriptorProto.TYPE_BYTES, label=1)
    request = file.message_type.add(name="SQLBatchRequest")
    request.oneof_decl.add(name="value")
    request.field.add(name="shard", number=1, type=FieldDescriptorProto.TYPE_BYTES, label=1)
    request.field.add(name="table", number=2, type=FieldDescriptorProto.TYPE_BYTES, label=1)
    _message(request, "nucolumnarEncoding", 3, "SqlWithBatchBindings", oneof=True)
    _message(request, "clickHouseEncoding", 4, "ClickHouseNativeBlock", oneof=True)
    request.field.add(name="schema_hashcode", number=5, type=FieldDescriptorProto.TYPE_INT64, label=1)
    pool = DescriptorPool()
    made = pool.AddSerializedFile(file.SerializeToString())
    return GetMessageClass(made.message_types_by_name["SQLBatchRequest"])


def _message(
    owner: DescriptorProto, name: str, number: int, type_: str, *, repeated: bool = False, oneof: bool = False
) -> None:
    field = owner.field.add(
        name=name,
        number=number,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=f".{PACKAGE}.{type_}",
        label=FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL,
    )
    if oneof:
        field.oneof_index = 0
