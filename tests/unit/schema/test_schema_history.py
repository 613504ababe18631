"""The history only grows, and a number once given to a column stays that column's."""

from __future__ import annotations

import pytest

from blockhouse.errors import Blocked
from blockhouse.schema.history import extend, first_revision
from blockhouse.schema.model import DefaultKind, ServerColumn, TableHistory


def columns(*described: tuple[str, ...]) -> list[ServerColumn]:
    """(name, type[, kind, expression]) of every column."""
    return [
        ServerColumn(
            name=name, type=type_, default_kind=DefaultKind(rest[0] if rest else ""), default_expression=expression
        )
        for name, type_, *rest in described
        for expression in [rest[1] if len(rest) > 1 else ""]
    ]


def numbers(history: TableHistory) -> list[tuple[str, int]]:
    assert history.current is not None
    return [(column.name, column.field) for column in history.current.columns]


EMPTY = TableHistory(id=7, name="db.t")
BEFORE = extend(EMPTY, columns(("a", "UInt8"), ("b", "String")))


def test_the_first_revision_numbers_the_columns_in_the_servers_order() -> None:
    assert first_revision(columns(("b", "String"), ("a", "UInt8"))).columns[0].field == 1
    assert numbers(BEFORE) == [("a", 1), ("b", 2)]


def test_nothing_changed_is_the_same_history() -> None:
    assert extend(BEFORE, columns(("a", "UInt8"), ("b", "String"))) is BEFORE


def test_a_column_added_in_the_middle_renumbers_nothing() -> None:
    after = extend(BEFORE, columns(("a", "UInt8"), ("new", "UInt8"), ("b", "String"), ("last", "UInt8")))
    assert numbers(after) == [("a", 1), ("new", 3), ("b", 2), ("last", 4)]
    assert [revision.number for revision in after.revisions] == [1, 2]
    assert after.revisions[0] == BEFORE.revisions[0]


def test_numbers_reserved_by_protobuf_are_skipped() -> None:
    many = extend(EMPTY, columns(*((f"c{n}", "UInt8") for n in range(19_001))))
    assert numbers(many)[18_998:19_000] == [("c18998", 18_999), ("c18999", 20_000)]


def test_a_changed_default_or_order_is_a_new_revision() -> None:
    other_default = extend(BEFORE, columns(("a", "UInt8", "DEFAULT", "5"), ("b", "String")))
    assert other_default.current is not None
    assert other_default.current.number == 2
    assert numbers(extend(BEFORE, columns(("b", "String"), ("a", "UInt8")))) == [("b", 2), ("a", 1)]


def test_an_enum_may_get_more_names() -> None:
    history = extend(EMPTY, columns(("e", "Enum8('a' = 1)")))
    assert len(extend(history, columns(("e", "Enum8('a' = 1, 'b' = 2)"))).revisions) == 2
    with pytest.raises(Blocked, match="column e changed from"):
        extend(history, columns(("e", "Enum8('a' = 2, 'b' = 1)")))


@pytest.mark.parametrize(
    ("now", "difference"),
    [
        (columns(("a", "UInt8")), "column b was dropped or renamed, or not added here yet: ADD COLUMN b String$"),
        (columns(("a", "UInt16"), ("b", "String")), "column a changed from UInt8 to UInt16"),
        (columns(("a", "UInt8", "MATERIALIZED", "1"), ("b", "String")), "column a became MATERIALIZED"),
        (columns(("a", "UInt8", "ALIAS", "1"), ("b", "String")), "column a became ALIAS"),
    ],
)
def test_a_change_that_could_lose_data_blocks_and_names_which(now: list[ServerColumn], difference: str) -> None:
    with pytest.raises(Blocked, match=difference) as blocked:
        extend(BEFORE, now)
    assert blocked.value.reason == "SchemaChange"
    assert "db.t" in str(blocked.value)


def test_a_history_survives_json() -> None:
    assert TableHistory.model_validate_json(BEFORE.model_dump_json()) == BEFORE
