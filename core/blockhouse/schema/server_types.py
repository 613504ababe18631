"""Types that a ClickHouse does not have: which columns need them, and what older servers store instead."""

from __future__ import annotations

from collections.abc import Collection, Iterator

from blockhouse.schema.ddl import DeclaredColumn
from blockhouse.schema.parse import type_names

_WIDE = "FixedString, or Decimal(38, 0) for up to 38 digits"
_LINES = "Array(Float64) columns"
INSTEAD = {
    "Bool": "UInt8",
    "Date32": "Date",
    "DateTime64": "DateTime, or Int64 for ticks",
    "Decimal256": "Decimal with at most 38 digits",
    "IPv4": "UInt32",
    "IPv6": "FixedString(16)",
    "Int128": _WIDE,
    "Int256": _WIDE,
    "LineString": _LINES,
    "Map": "two Array columns",
    "MultiLineString": _LINES,
    "MultiPolygon": _LINES,
    "Point": "two Float64 columns",
    "Polygon": _LINES,
    "Ring": _LINES,
    "SimpleAggregateFunction": "the type inside it",
    "Time": "Int32",
    "Time64": "Int64",
    "UInt128": _WIDE,
    "UInt256": _WIDE,
}
"""By type, those that the oldest supported server (18.16) lacks."""


def lacking(columns: Collection[DeclaredColumn], server: str, families: Collection[str]) -> Iterator[str]:
    """A sentence for each column of a type that is not among `families`, the names that the server knows. `server` is
    its version."""
    for each in columns:
        for name in sorted(type_names(each.column.type) - set(families)):
            instead = f"use {INSTEAD[name]}, or a newer server" if name in INSTEAD else "use a newer server"
            yield f"column {each.column.name} is {each.column.type}: ClickHouse {server} has no type {name}; {instead}"
