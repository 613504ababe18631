"""From a schema revision to protobuf: the `RowBatch` that producers send and the aggregator reads.

    message RowBatch { repeated Row rows = 1; }

`Row` has one field per column a producer may fill, under the field number of the schema history. Pure: nothing is
compiled, descriptors are built in memory. Must never derive a field number from a column's position.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import assert_never

from google.protobuf.descriptor_pb2 import DescriptorProto, FieldDescriptorProto, FileDescriptorProto
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Message
from google.protobuf.message_factory import GetMessageClass

from blockhouse.schema.kinds import is_repeated, is_wrapped
from blockhouse.schema.model import Revision, TableHistory
from blockhouse.schema.parse import column_type, parse_type
from blockhouse.schema.types import (
    Array,
    Decimal,
    Fixed,
    Float,
    Integer,
    Leaf,
    Map,
    Nullable,
    Plain,
    Proto,
    Text,
    Tuple,
    Type,
    plain,
)

PACKAGE = "blockhouse.rows"

_CODES = {proto: FieldDescriptorProto.Type.Value(f"TYPE_{proto.name}") for proto in Proto}
_WIDE = {Proto.INT32: Proto.INT64, Proto.UINT32: Proto.UINT64}
_NOT_IN_A_NAME = re.compile(r"[^A-Za-z0-9_]")


def row_batch_class(table: TableHistory, revision: Revision, *, wide: bool = False) -> type[Message]:
    """The message class `RowBatch` of one revision of `table`. See `file_descriptor` for `wide` and errors."""
    pool = DescriptorPool()
    file = pool.AddSerializedFile(file_descriptor(table, revision, wide=wide).SerializeToString())
    return GetMessageClass(file.message_types_by_name["RowBatch"])


def file_descriptor(table: TableHistory, revision: Revision, *, wide: bool = False) -> FileDescriptorProto:
    """The .proto file of one revision, as a descriptor.

    With `wide`, 32-bit integers are declared with 64 bits. Both have the same bytes on the wire, but a reader of the
    wide form sees a number that is too large, where protobuf would cut it to 32 bits without a word.
    Raises Permanent(reason="UnsupportedType") for a column that cannot be loaded.
    """
    package = f"{PACKAGE}.{identifier(table.name.replace('.', '__'))}"
    file = FileDescriptorProto(name=f"{package}.{revision.number}.proto", package=package, syntax="proto3")
    builder = _Builder(wide)
    row = file.message_type.add(name="Row")
    builder.fill(row, f".{package}.Row", {c.field: (c.name, column_type(table.name, c)) for c in revision.row})
    batch = file.message_type.add(name="RowBatch")
    batch.field.add(
        name="rows",
        number=1,
        label=FieldDescriptorProto.LABEL_REPEATED,
        type=FieldDescriptorProto.TYPE_MESSAGE,
        type_name=f".{package}.Row",
    )
    return file


def field_names(table: TableHistory, revision: Revision) -> dict[str, str]:
    """Column name -> name of its field in `Row`. They differ where a column's name is no protobuf identifier."""
    row = file_descriptor(table, revision).message_type[0]
    by_number = {field.number: field.name for field in row.field}
    return {column.name: by_number[column.field] for column in revision.row}


def render_proto(table: TableHistory, revision: Revision) -> str:
    """The same file as .proto text for producers, with the ClickHouse type and the meaning of every column."""
    file = file_descriptor(table, revision)
    types = {column.field: column.type for column in revision.row}
    head = [
        f"// Rows of the ClickHouse table {table.name}, schema revision {revision.number}.",
        f"// Send RowBatch with the headers table={table.name}, format=rows, schema={revision.number}.",
        'syntax = "proto3";',
        "",
        f"package {file.package};",
    ]
    for message in file.message_type:
        head += ["", *_render(message, types if message.name == "Row" else {}, "")]
    return "\n".join(head) + "\n"


def identifier(name: str) -> str:
    """The name with everything a protobuf identifier may not hold replaced by an underscore."""
    safe = _NOT_IN_A_NAME.sub("_", name)
    return safe if safe[:1].isalpha() else f"f{safe}"


class _Names:
    """Names of one message. Those that protobuf could confuse (`a.b`, `a_b`, `aB`) get their number as a suffix.

    Names are given in the order of the field numbers, so a column added later never changes an older name.
    """

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, desired: str, number: int) -> str:
        name = identifier(desired)
        while self._key(name) in self._taken:
            name = f"{name}_{number}"
        self._taken.add(self._key(name))
        return name

    @staticmethod
    def _key(name: str) -> str:
        return name.replace("_", "").lower()


class _Builder:
    def __init__(self, wide: bool) -> None:
        self._wide = wide

    def fill(self, message: DescriptorProto, path: str, fields: Mapping[int, tuple[str, Type]]) -> None:
        """Adds the fields, number -> (name, type), to the message whose full name is `path`."""
        names = _Names()
        for number, (desired, type_) in sorted(fields.items()):
            self._add(message, path, names.take(desired, number), number, plain(type_), names)

    def _add(self, message: DescriptorProto, path: str, name: str, number: int, type_: Plain, names: _Names) -> None:
        repeated = is_repeated(type_)
        field = message.field.add(name=name, number=number)
        field.label = FieldDescriptorProto.LABEL_REPEATED if repeated else FieldDescriptorProto.LABEL_OPTIONAL
        if not repeated:
            # Explicit presence (proto3 `optional`): absent and zero are different things.
            field.proto3_optional = True
            field.oneof_index = len(message.oneof_decl)
            message.oneof_decl.add(name=f"_{name}")
        match type_:
            case Array(inner=inner):
                # A repeated field cannot repeat again: an element that is itself a list gets a message of its own.
                members = {1: ("value", inner)} if is_wrapped(inner) else _members(plain(inner))
                suffix = "Item"
            case Map():
                members, suffix = _members(type_), "Entry"
            case Tuple() | Nullable() | Integer() | Float() | Text() | Fixed() | Decimal():
                members, suffix = _members(type_), "Value"
            case _:
                assert_never(type_)
        if not isinstance(members, dict):
            proto = members.proto
            field.type = _CODES[_WIDE.get(proto, proto) if self._wide else proto]
            return
        nested = message.nested_type.add(name=names.take(_camel(name) + suffix, number))
        field.type, field.type_name = FieldDescriptorProto.TYPE_MESSAGE, f"{path}.{nested.name}"
        self.fill(nested, field.type_name, members)


def _members(type_: Plain) -> Leaf | dict[int, tuple[str, Type]]:
    """The leaf whose scalar stands for the type, or the fields of the message that does."""
    match type_:
        case Map(key=key, value=value):
            return {1: ("key", key), 2: ("value", value)}
        case Tuple(names=names, elements=elements):
            labels = [f"v{name}" if name.isdigit() else name for name in names]
            return dict(enumerate(zip(labels, elements, strict=True), 1))
        case Array():
            return {1: ("value", type_)}
        case Nullable(inner=leaf):
            return leaf
        case Integer() | Float() | Text() | Fixed() | Decimal():
            return type_
        case _:
            assert_never(type_)


def _camel(name: str) -> str:
    return "".join(part[:1].upper() + part[1:] for part in name.split("_"))


def _render(message: DescriptorProto, types: Mapping[int, str], indent: str) -> Iterator[str]:
    yield f"{indent}message {message.name} {{"
    for nested in message.nested_type:
        yield from _render(nested, {}, indent + "  ")
    for field in message.field:
        repeated = field.label == FieldDescriptorProto.LABEL_REPEATED
        kind = field.type_name.rsplit(".", 1)[-1] or FieldDescriptorProto.Type.Name(field.type)[5:].lower()
        line = f"{indent}  {'repeated' if repeated else 'optional'} {kind} {field.name} = {field.number};"
        yield line + (f"  // {_comment(types[field.number])}" if field.number in types else "")
    yield f"{indent}}}"


def _comment(type_text: str) -> str:
    meaning = "" if type_text.startswith("Enum") else getattr(plain(parse_type(type_text)), "meaning", "")
    return " ".join(f"{type_text}{': ' if meaning else ''}{meaning}".split())
