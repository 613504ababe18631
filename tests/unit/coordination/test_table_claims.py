"""Whose rows may be in one table, by what the table shows of them."""

from __future__ import annotations

import pytest

from blockhouse.errors import Blocked
from blockhouse.schema.model import PROVENANCE_COLUMNS
from blockhouse_aggregator.coordination.claims import Claims, Topic, admit

NAMED = frozenset(PROVENANCE_COLUMNS)
UNNAMED = NAMED - {"_kafka_topic"}
BARE: frozenset[str] = frozenset()
OURS, THEIRS = ("a", "events/1"), ("a", "other/2")
NONE = Claims(czxid=7)


def held(who: str, *topics: Topic, ended: bool = False) -> Claims:
    claims = NONE
    for topic in topics:
        claims = claims.with_claim(who, topic)
    return claims.ended(who) if ended else claims


@pytest.mark.parametrize("columns", [NAMED, UNNAMED, BARE])
def test_the_first_one_has_the_table_and_every_replica_of_it_the_same_claim(columns: frozenset[str]) -> None:
    claims, sole = admit(NONE, "db.t", "we", OURS, columns)
    assert sole
    again, sole = admit(claims, "db.t", "we", OURS, columns)
    assert (again, sole) == (claims, True)
    assert again is claims, "nothing is written again"


@pytest.mark.parametrize(
    ("topic", "columns"),
    [(THEIRS, UNNAMED), (THEIRS, BARE), (("b", "other/2"), BARE), (OURS, NAMED)],
    ids=["no topic in rows", "no cluster in rows", "nor another cluster's", "the same topic under another group"],
)
def test_a_second_one_is_refused_unless_its_rows_are_separated(topic: Topic, columns: frozenset[str]) -> None:
    with pytest.raises(Blocked, match=r"loaded by they") as refused:
        admit(held("they", topic), "db.t", "we", OURS, columns)
    assert refused.value.reason == "TableClaimed"


@pytest.mark.parametrize(
    ("topic", "columns", "sole"),
    [(THEIRS, NAMED, False), (("a", "events/0"), NAMED, False), (("b", "events/1"), UNNAMED, True)],
    ids=["another topic", "an older one of the name", "of another cluster"],
)
def test_one_whose_rows_are_separated_shares_the_table(topic: Topic, columns: frozenset[str], sole: bool) -> None:
    """Rows from before the column are separated by nothing: they are no one's for certain."""
    claims, alone = admit(held("they", topic), "db.t", "we", OURS, columns)
    assert set(claims.claimants) == {"we", "they"}
    assert alone is sole


def test_a_topic_that_is_created_again_is_remembered() -> None:
    claims, sole = admit(held("we", ("a", "events/0")), "db.t", "we", OURS, UNNAMED)
    assert not sole
    assert claims.claimants["we"].topics == (("a", "events/0"), OURS)


def test_the_rows_of_one_that_has_ended_are_there_still() -> None:
    claims, sole = admit(held("they", THEIRS, ended=True), "db.t", "we", OURS, UNNAMED)
    assert not sole
    with pytest.raises(Blocked):
        admit(claims, "db.t", "they", THEIRS, UNNAMED)
    assert Claims.model_validate_json(claims.model_dump_json()) == claims
