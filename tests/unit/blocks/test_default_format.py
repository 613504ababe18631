"""Messages without a `format` header are in the configured format: eBay's producers send none."""

from __future__ import annotations

from blockhouse_aggregator.blocks.routing import Misrouted, Route, Router
from blockhouse_aggregator.wire.formats import Format

BARE = [("table", b"clicks")]


def test_without_a_header_the_configured_format_is_taken() -> None:
    assert Router("db", Format.NUCOLUMNAR).route(BARE) == Route("db.clicks", 0, Format.NUCOLUMNAR)
    assert Router("db").route(BARE) == Misrouted("db.clicks", "NoSchemaHeader"), "rows need a schema revision"


def test_a_header_decides_against_the_configured_format() -> None:
    rows = [*BARE, ("format", b"rows"), ("schema", b"3")]
    assert Router("db", Format.NUCOLUMNAR).route(rows) == Route("db.clicks", 3, Format.ROWS)
