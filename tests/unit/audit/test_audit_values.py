"""Values read by the path of the audit itself: every type in every format, against the decoders of the aggregator."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal as Number
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

from blockhouse.schema.parse import parse_type
from blockhouse.schema.types import Array, Decimal, Fixed, Layout, Map, Nullable, Tuple, Type, plain
from blockhouse_aggregator.audit.values.choosing import PLACES, RUN, choose
from blockhouse_aggregator.audit.values.comparable import comparable, different
from blockhouse_aggregator.audit.values.reading import NotRead, reader
from blockhouse_aggregator.wire.formats import Format, decoder
from tests.format_messages import FORMATS, encode, history
from tests.type_cases import CASES
from tests.type_values import ABSENT, SKIP, Case

PAIRS = [
    pytest.param(form, case, id=f"{form} {case.type}")
    for form in FORMATS
    for case in CASES
    if any(getattr(value, form) not in (SKIP, ABSENT) for value in case.good)
]


def messages(form: str, case: Case) -> Iterator[tuple[str, bytes]]:
    """A message per value that is sent, with what a server shows for it."""
    table = history({"x": case.type})
    for value in case.good:
        if getattr(value, form) not in (SKIP, ABSENT):
            yield value.shown, encode(form, table, [{"x": getattr(value, form)}])


def as_audited(value: Any, type_: Type) -> Any:
    """What a decoder's Arrow column holds, as the audit compares it."""
    match kind := plain(type_):
        case Nullable(inner=leaf):
            return None if value is None else as_audited(value, leaf)
        case Array(inner=inner):
            return [as_audited(item, inner) for item in value]
        case Map(key=key, value=inner):
            return [(as_audited(e["key"], key), as_audited(e["value"], inner)) for e in value]
        case Tuple(elements=elements):
            return tuple(as_audited(item, e) for item, e in zip(value.values(), elements, strict=True))
        case Fixed(layout=Layout.SIGNED | Layout.UNSIGNED as layout):
            return str(int.from_bytes(value, "little", signed=layout is Layout.SIGNED)).encode()
        case Decimal():
            return Number(value)
        case _:
            assert not isinstance(kind, Tuple)
            return value


@pytest.mark.parametrize(("form", "case"), PAIRS)
def test_both_paths_read_the_same_value(form: str, case: Case) -> None:
    table, type_ = history({"x": case.type}), parse_type(case.type)
    payloads = [payload for _, payload in messages(form, case)]
    decoded = decoder(Format(form), table, table.revisions[0], None).decode(payloads)
    own = reader(Format(form), table, table.revisions[0])
    rows = [row for payload in payloads for row in own.rows(payload)]

    cells = own.column("x", type_, rows)

    assert not decoded.bad
    assert not cells.absent.any()
    assert not cells.unreadable.any()
    theirs = comparable([as_audited(value, type_) for value in decoded.columns["x"].to_pylist()], type_)
    assert not different(comparable(cells.values, type_), theirs).any()


@pytest.mark.parametrize(("form", "case"), PAIRS)
def test_a_value_that_a_server_shows_otherwise_is_different(form: str, case: Case) -> None:
    table, type_ = history({"x": case.type}), parse_type(case.type)
    shown, payloads = zip(*messages(form, case), strict=True)
    own = reader(Format(form), table, table.revisions[0])
    values = own.column("x", type_, [row for payload in payloads for row in own.rows(payload)]).values
    turned = [*values[1:], values[0]]

    found = different(comparable(values, type_), comparable(turned, type_))

    others = [*shown[1:], shown[0]]
    assert found.tolist() == [one != other for one, other in zip(shown, others, strict=True)]


def test_a_value_that_its_type_cannot_hold_is_unreadable_and_no_other_one() -> None:
    table = history({"x": "UInt8"})
    own = reader(Format.JSON, table, table.revisions[0])
    rows = own.rows(b'{"x": 1}\n{"x": 256}\n{"x": "one"}\n{}\n{"x": null}')

    cells = own.column("x", parse_type("UInt8"), rows)

    assert cells.unreadable.tolist() == [False, True, True, False, True]
    assert cells.absent.tolist() == [False, False, False, True, False]


@pytest.mark.parametrize(
    ("form", "payload"),
    [(Format.ROWS, b"\xff"), (Format.JSON, b"{"), (Format.JSON, b"[1]"), (Format.NUCOLUMNAR, b"\x1a\x03\x0a\x01x")],
)
def test_a_message_that_is_no_message_is_not_read(form: Format, payload: bytes) -> None:
    table = history({"x": "UInt8"})
    with pytest.raises(NotRead):
        reader(form, table, table.revisions[0]).rows(payload)


def test_lists_differ_where_an_element_or_their_length_does() -> None:
    type_ = parse_type("Array(Nullable(UInt8))")
    one = comparable([[1], [1, 2], [], [None], [3, 4]], type_)
    other = comparable([[1], [1], [], [0], [3, 5]], type_)
    assert different(one, other).tolist() == [False, True, False, True, True]
    assert different(one[:0], other[:0]).tolist() == []


def test_numbers_are_compared_by_their_bits_and_every_nan_is_the_same() -> None:
    type_ = parse_type("Float32")
    sent = comparable([0.1, 0.0, float("nan"), 1.0], type_)
    stored = comparable([float(np.float32(0.1)), -0.0, -float("nan"), 1.0 + 2**-23], type_)
    assert different(sent, stored).tolist() == [False, True, False, True]


def test_a_sample_is_of_about_that_many_messages_in_runs_and_of_every_place() -> None:
    streams = [np.arange(0, 10_000, 2), np.arange(7, 1_007)]
    found = [choose(streams, 500, np.random.default_rng(seed)) for seed in range(40)]
    assert {sum(map(len, chosen)) for chosen in found} == {500}
    assert all(np.isin(part, stream).all() for chosen in found for part, stream in zip(chosen, streams, strict=True))
    assert {int(offset) // 1_000 for chosen in found for offset in chosen[0]} == set(range(10))
    assert max(len(np.flatnonzero(np.diff(chosen[0]) > 2)) for chosen in found) < 500 // RUN
    assert [part.tolist() for part in choose(streams, None, np.random.default_rng(1))] == [s.tolist() for s in streams]


def test_a_large_sample_is_of_longer_runs_so_that_its_places_stay_few() -> None:
    (found,) = choose([np.arange(1_000_000)], 50_000, np.random.default_rng(1))
    assert len(found) == 50_000
    assert len(np.flatnonzero(np.diff(found) > 1)) < PLACES


def test_types_of_arrow_are_those_of_the_stored_form() -> None:
    assert comparable([], parse_type("Map(String, Tuple(UInt8, Decimal(9, 2)))")).type == pa.list_(
        pa.struct([("0", pa.binary()), ("1", pa.struct([("0", pa.uint64()), ("1", pa.string())]))])
    )
