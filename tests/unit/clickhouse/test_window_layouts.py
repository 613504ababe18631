"""Where servers of different versions keep the hashes of blocks, and what is counted of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, cast

import pytest

from blockhouse_aggregator.clickhouse import quorum
from blockhouse_aggregator.clickhouse.quorum import UNKNOWN, QuorumProbe
from blockhouse_aggregator.coordination.znodes import Znode

TABLE = "/clickhouse/tables/01/t"
OF_18_16 = ("block_numbers", "blocks", "columns", "leader_election", "log", "metadata", "mutations", "quorum", "temp")
OF_26_9 = (*OF_18_16, "alter_partition_version", "async_blocks", "deduplication_hashes", "lightweight_updates")


class Nodes:
    """Names of the children by path; all were created at second 10."""

    def __init__(self, tree: Mapping[str, Sequence[str]]) -> None:
        self._tree = tree

    def sync(self, path: str) -> None:
        pass

    def children(self, path: str) -> list[str]:
        return sorted(self._tree.get(path, ()))

    def get_many(self, paths: Sequence[str]) -> list[Znode | None]:
        return [Znode(b"", 0, 10_000, 0, children=len(self._tree.get(path, ()))) for path in paths]


def counted(
    monkeypatch: pytest.MonkeyPatch, layout: Sequence[str], older_than_ms: int = UNKNOWN, **entries: int
) -> int:
    tree = {f"{TABLE}/{name}": [f"all_{n}" for n in range(count)] for name, count in entries.items()}
    monkeypatch.setattr(quorum, "Znodes", lambda *_, **__: Nodes({TABLE: layout, **tree}))
    return QuorumProbe(cast(Any, None)).blocks_since(TABLE, 5_000, older_than_ms=older_than_ms)


def test_the_fullest_directory_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """A hash is in one of them, or in both while a server writes both: each is trimmed by itself."""
    assert counted(monkeypatch, OF_18_16, blocks=7) == 7
    assert counted(monkeypatch, OF_26_9, deduplication_hashes=30) == 30
    assert counted(monkeypatch, OF_26_9, blocks=30, deduplication_hashes=30, async_blocks=900) == 30


def test_a_layout_that_was_never_seen_is_not_certain(monkeypatch: pytest.MonkeyPatch) -> None:
    assert counted(monkeypatch, (*OF_26_9, "block_hashes"), blocks=1) == UNKNOWN
    assert counted(monkeypatch, ("columns", "log"), blocks=1) == UNKNOWN
    assert counted(monkeypatch, ()) == UNKNOWN


def test_a_window_that_is_younger_than_the_intent_holds_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """The table was dropped and created again, or another one took its name: the nodes were created at second 10."""
    assert counted(monkeypatch, OF_18_16, older_than_ms=10_001, blocks=7) == 7
    assert counted(monkeypatch, OF_18_16, older_than_ms=10_000, blocks=7) == UNKNOWN
    assert counted(monkeypatch, OF_26_9, older_than_ms=9_000, deduplication_hashes=7) == UNKNOWN
