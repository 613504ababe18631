"""Every type in every format: ClickHouse reads what was sent, our bytes are its own, and what does not fit is dead."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from blockhouse.config.pipeline import MAX_ROWS
from blockhouse.schema.defaults import constant_default
from blockhouse.streams import StreamId
from blockhouse_aggregator.blocks.build import BlockBuilder, Sealed
from blockhouse_aggregator.wire.formats import Format
from tests.format_messages import FORMATS, encode, history
from tests.type_cases import CASES
from tests.type_values import ABSENT, SKIP, Case, Value


def every(*, chosen: Callable[[str, Case], object] = lambda _form, _case: True) -> pytest.MarkDecorator:
    """Each format with each type."""
    pairs = [(form, case) for form in FORMATS for case in CASES if chosen(form, case)]
    return pytest.mark.parametrize(("form", "case"), pairs, ids=[f"{form} {case.type}" for form, case in pairs])


def seal(case_type: str, messages: list[tuple[str, dict[str, Any]]]) -> Sealed:
    """One message a row, each of its own format, in a table whose other column numbers them."""
    table = history({"x": case_type, "n": "UInt32"})
    builder = BlockBuilder(table, table.revisions[0], StreamId("a", "t", 0))
    for offset, (form, row) in enumerate(messages):
        builder.append(offset, encode(form, table, [row]), 1, Format(form))
    return builder.seal(MAX_ROWS)


def row(form: str, number: int, value: Any) -> dict[str, Any]:
    """A row whose column `x` has the value."""
    numbered: Any = {"long_value": number} if form == "nucolumnar" else number
    return {"n": numbered} | ({} if value is ABSENT else {"x": value})


def sent(form: str, values: Any) -> list[Value]:
    return [value for value in values if getattr(value, form) is not SKIP]


@every()
def test_clickhouse_reads_what_was_sent_and_would_write_the_same_bytes(
    oracle: Any, tmp_path: Path, form: str, case: Case
) -> None:
    # given all good values of the type, and a message without the column
    values = sent(form, case.good)
    messages = [(form, row(form, n, getattr(value, form))) for n, value in enumerate(values)]
    found = seal(case.type, [*messages, (form, row(form, len(values), ABSENT))])
    assert found.dead == ()
    assert found.block is not None
    # when ClickHouse reads the block
    (tmp_path / "block").write_bytes(found.block.body)
    select = (
        f"SELECT x, n FROM file('{tmp_path}/block', 'Native')"
        " SETTINGS max_threads = 1, enable_named_columns_in_function_tuple = 0"
    )
    # then it sees the values, and its own bytes for them are ours (a file's header leaves a DateTime's zone out)
    zone = case.type.partition("'")[2].partition("'")[0] if case.type.startswith("DateTime(") else "UTC"
    shown = oracle.query(f"{select}, session_timezone = '{zone}'", "TSV").decode("utf-8", "surrogateescape")
    assert [line.split("\t")[0] for line in shown.removesuffix("\n").split("\n")] == [
        *(value.shown for value in values),
        case.zero,
    ]
    ours = found.block.body
    if case.type.startswith("DateTime("):
        ours = ours.replace(bytes([len(case.type)]) + case.type.encode(), b"\x08DateTime")
    assert oracle.query(select, "Native") == ours


@every(chosen=lambda form, case: sent(form, case.bad))
def test_a_value_that_does_not_fit_makes_exactly_its_message_bad(form: str, case: Case) -> None:
    for value in sent(form, case.bad):
        # given a bad message between two good ones
        messages = [
            (form, row(form, 0, ABSENT)),
            (form, row(form, 1, getattr(value, form))),
            (form, row(form, 2, ABSENT)),
        ]
        found = seal(case.type, messages)
        # then it is dead, and the block is that of the two others
        assert [(dead.offset, dead.reason) for dead in found.dead] == [(1, value.shown)], value
        named = "column x (" in found.dead[0].detail and ", row 1: " in found.dead[0].detail
        assert named or value.shown == "Undecodable", found.dead[0].detail
        alone = seal(case.type, [messages[0], messages[2]]).block
        assert found.block is not None
        assert alone is not None
        assert found.block.body == alone.body


@every(chosen=lambda _form, case: case.default)
def test_a_missing_column_takes_its_default_among_rows_that_have_it(form: str, case: Case) -> None:
    assert case.default is not None
    expression, _ = case.default
    value = sent(form, case.good)[0]
    # given rows with the column and one without, at a revision where it has a default
    messages = [(form, row(form, 0, getattr(value, form))), (form, row(form, 1, ABSENT))]
    found = seal(f"{case.type} DEFAULT {expression}", messages)
    assert found.dead == ()
    # then the latter is what an explicit value is, and not the zero
    explicit = seal(f"{case.type} DEFAULT {expression}", [*messages[:1], ("rows", row("rows", 1, _rows_form(case)))])
    assert found.block is not None
    assert explicit.block is not None
    assert found.block.body == explicit.block.body


def _rows_form(case: Case) -> Any:
    column = history({"x": f"{case.type} DEFAULT {case.default[0] if case.default else ''}"}).revisions[0].columns[0]
    found = constant_default("db.t", column)
    return ABSENT if found is None else found


def test_messages_of_all_formats_make_one_block_in_the_order_of_their_offsets() -> None:
    def message(form: str, number: int) -> tuple[str, dict[str, Any]]:
        if form == "nucolumnar":
            return form, {"n": {"int_value": number}, "x": {"list_value": [{"int_value": number}]}}
        return form, {"n": number, "x": [number]}

    mixed = seal("Array(UInt32)", [message(FORMATS[n % 3], n) for n in range(12)])
    assert mixed.block is not None
    assert mixed == seal("Array(UInt32)", [message("rows", n) for n in range(12)])
