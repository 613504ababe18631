"""By what a block is recognised that may have been sent to any replica of its shard."""

from __future__ import annotations

import pytest

from blockhouse_aggregator.clickhouse.identities import weakest
from blockhouse_aggregator.clickhouse.tables import By, Identity
from blockhouse_aggregator.coordination.znodes import Znode

NOTHING = Identity(By.NOTHING)


def node(tokens: object, since_ms: int = 0, version: int = 0) -> Znode:
    return Znode(f'{{"tokens": {tokens}, "since_ms": {since_ms}}}'.encode(), version, 0, 0)


NEW, OLD, UNREADABLE = node("true", 50), node("false", 50), Znode(b"?", 0, 0, 0)


@pytest.mark.parametrize(
    ("replicas", "tokens", "expected"),
    [
        ([NEW, NEW], True, Identity(By.TOKEN, 50)),
        ([NEW, node("true", 80, 1)], True, Identity(By.TOKEN, 80)),
        ([OLD, OLD], False, Identity(By.CONTENT)),
        ([OLD, None], False, Identity(By.CONTENT)),  # its aggregator is of a version that records nothing
        ([OLD, node("false", 80, 3)], False, Identity(By.CONTENT, 80)),  # it had tokens before
    ],
)
def test_replicas_that_are_alike_recognise_a_block_by_what_all_have(
    replicas: list[Znode | None], tokens: bool, expected: Identity
) -> None:
    assert weakest(replicas, tokens=tokens) == expected


@pytest.mark.parametrize(
    ("replicas", "tokens"),
    [([NEW, OLD], True), ([NEW, OLD], False), ([NEW, None], True), ([NEW, UNREADABLE], True), ([UNREADABLE], False)],
)
def test_the_weakest_replica_decides(replicas: list[Znode | None], tokens: bool) -> None:
    assert weakest(replicas, tokens=tokens) == NOTHING
