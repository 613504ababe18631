"""From a schema revision to JSON Schema (draft 2020-12): what one line of format `json` may hold.

For producers' editors, tests and code generators; the aggregator itself reads the types, not this. It describes the
canonical spelling of a value: the page on messages names the others that are taken.
"""

from __future__ import annotations

import json
from typing import Any, assert_never

from blockhouse.schema.model import Revision, TableHistory
from blockhouse.schema.parse import column_type
from blockhouse.schema.types import (
    Array,
    Decimal,
    Fixed,
    Float,
    Integer,
    Layout,
    Leaf,
    Map,
    Nullable,
    Proto,
    Text,
    Tuple,
    Type,
    Unit,
    plain,
)

_DIALECT = "https://json-schema.org/draft/2020-12/schema"


def render_json(table: TableHistory, revision: Revision) -> str:
    """The schema of one row as JSON text. Raises Permanent(reason="UnsupportedType")."""
    properties = {c.name: {"description": c.type} | _described(column_type(table.name, c)) for c in revision.row}
    schema = {
        "$schema": _DIALECT,
        "title": f"A row of {table.name}, schema revision {revision.number}",
        "description": f"Send one object a line with the headers table={table.name} and format=json.",
        "type": "object",
        "properties": properties,
        "additionalProperties": False,
    }
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def _described(type_: Type) -> dict[str, Any]:
    match plain(type_):
        case Nullable(inner=leaf):
            return {"anyOf": [_leaf(leaf), {"type": "null"}]}
        case Array(inner=inner):
            return {"type": "array", "items": _described(inner)}
        case Map(value=value):
            return {"type": "object", "additionalProperties": _described(value)}
        case Tuple(names=names, elements=elements):
            members = [_described(element) for element in elements]
            listed = {"type": "array", "prefixItems": members, "items": False, "minItems": len(members)}
            if names[0].isdigit():
                return listed
            fields = dict(zip(names, members, strict=True))
            named = {"type": "object", "properties": fields, "required": list(fields), "additionalProperties": False}
            return {"anyOf": [named, listed]}
        case leaf:
            return _leaf(leaf)


def _leaf(leaf: Leaf) -> dict[str, Any]:
    match leaf:
        case Integer(proto=Proto.BOOL):
            return {"type": "boolean"}
        case Integer(unit=Unit.CODE, codes=codes):
            return {"enum": [name for name, _ in codes]}
        case Integer(unit=Unit.DAY):
            return {"type": "string", "format": "date"}
        case Integer(unit=Unit.TICK, precision=precision):
            fraction = rf"(\.\d{{1,{precision}}})?" if precision else ""
            return {"type": "string", "pattern": rf"^\d{{4}}-\d\d-\d\d[ T]\d\d:\d\d:\d\d{fraction}(Z|[+-]\d\d:\d\d)?$"}
        case Integer(unit=Unit.ADDRESS):
            return {"type": "string", "format": "ipv4"}
        case Integer(low=low, high=high):
            return {"type": "integer", "minimum": low, "maximum": high}
        case Float():
            return {"anyOf": [{"type": "number"}, {"enum": ["nan", "inf", "-inf"]}]}
        case Decimal():
            return {"type": ["string", "number"], "pattern": r"^[+-]?\d*(\.\d*)?$"}
        case Text():
            return {"type": "string"}
        case Fixed(layout=Layout.UUID):
            return {"type": "string", "format": "uuid"}
        case Fixed(layout=Layout.ADDRESS):
            return {"type": "string", "format": "ipv6"}
        case Fixed(layout=Layout.PADDED, size=size):
            return {"type": "string", "maxLength": size}
        case Fixed():
            return {"type": ["integer", "string"], "pattern": r"^[+-]?\d+$"}
        case _:
            assert_never(leaf)
