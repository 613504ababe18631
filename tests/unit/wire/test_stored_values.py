"""What a current server gives for a stored value, as the audit asks for it, is what was sent: every type."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from blockhouse.schema.parse import parse_type
from blockhouse.schema.types import Array, Float, Integer, Map, Nullable, Tuple, Type, plain
from blockhouse_aggregator.audit.values.comparable import comparable, different
from blockhouse_aggregator.audit.values.reading import reader
from blockhouse_aggregator.audit.values.stored import stored_as, values_of
from blockhouse_aggregator.wire.formats import Format
from tests.format_messages import encode, history
from tests.type_cases import CASES
from tests.type_values import ABSENT, SKIP, Case
from tests.unit.wire.test_formats_matrix import row, seal


def answered(value: Any, type_: Type) -> Any:
    """A value of the server's JSON as the driver would give it, strings as bytes."""
    match plain(type_):
        case Nullable(inner=leaf):
            return None if value is None else answered(value, leaf)
        case Array(inner=inner):
            return [answered(item, inner) for item in value]
        case Map(key=key, value=inner):
            return [(answered(name, key), answered(item, inner)) for name, item in value]
        case Tuple(elements=elements):
            return tuple(answered(item, element) for item, element in zip(value, elements, strict=True))
        case Float():
            return float(value)
        case Integer():
            return int(value)
        case _:
            return value.encode("utf-8", "surrogateescape") if isinstance(value, str) else value


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.type)
def test_a_current_server_gives_what_was_sent(oracle: Any, tmp_path: Path, case: Case) -> None:
    # given every value of the type, stored by the aggregator's own block
    values = [value.rows for value in case.good if value.rows not in (SKIP, ABSENT)]
    block = seal(case.type, [("rows", row("rows", n, value)) for n, value in enumerate(values)]).block
    assert block is not None
    (tmp_path / "block").write_bytes(block.body)
    # when the server is asked for what it stores
    type_, table = parse_type(case.type), history({"x": case.type})
    select = f"SELECT {stored_as('x', type_)} AS v FROM file('{tmp_path}/block', 'Native')"
    quoted = "output_format_json_quote_denormals = 1, output_format_json_quote_decimals = 1, max_threads = 1"
    lines = oracle.query(f"{select} SETTINGS {quoted}", "JSONEachRow").decode("utf-8", "surrogateescape")
    found = [answered(json.loads(line, parse_int=str)["v"], type_) for line in lines.removesuffix("\n").split("\n")]
    # then it is what the audit reads of the messages
    own = reader(Format.ROWS, table, table.revisions[0])
    rows = [read for value in values for read in own.rows(encode("rows", table, [{"x": value}]))]
    sent = comparable(own.column("x", type_, rows).values, type_)
    assert not different(sent, comparable(values_of(found, type_), type_)).any(), found
