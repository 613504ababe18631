"""Tables whose rows may have been removed on purpose are known by their TTL and by their mutations."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, cast

import pytest

from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.removals import (
    removing_ttl,
    why_not_to_insert_again,
    why_rows_may_be_removed,
)
from tests.unit.runtime.test_storing import TABLE

ENGINE = "ENGINE = ReplicatedMergeTree('/t', '{replica}') PARTITION BY toYYYYMM(d) ORDER BY id"
COLUMNS = "CREATE TABLE default.t (`id` UInt64, `d` DateTime, `text` String TTL d + toIntervalDay(1))"


@pytest.mark.parametrize(
    ("clause", "rules"),
    [
        ("", ""),
        (" TTL d + toIntervalDay(30)", "d + toIntervalDay(30)"),
        (" TTL d + toIntervalDay(30) DELETE WHERE id > 5", "d + toIntervalDay(30) DELETE WHERE id > 5"),
        (" TTL d + toIntervalDay(7) TO VOLUME 'slow'", ""),
        (" TTL d + toIntervalDay(7) TO DISK 'slow', d + toIntervalDay(9) TO VOLUME 'v'", ""),
        (
            " TTL d + toIntervalDay(7) TO VOLUME 'slow', d + toIntervalDay(30)",
            "d + toIntervalDay(7) TO VOLUME 'slow', d + toIntervalDay(30)",
        ),
        (" TTL d + toIntervalDay(30) GROUP BY id SET d = max(d)", "d + toIntervalDay(30) GROUP BY id SET d = max(d)"),
    ],
)
def test_a_ttl_removes_rows_unless_it_only_moves_them(clause: str, rules: str) -> None:
    assert removing_ttl(f"{COLUMNS} {ENGINE}{clause} SETTINGS index_granularity = 8192") == rules
    assert removing_ttl(f"{COLUMNS} {ENGINE}{clause}") == rules


@pytest.mark.parametrize(
    ("command", "removes"),
    [
        ("DELETE WHERE id = 5", True),
        ("(DELETE WHERE id = 5)", True),
        ("UPDATE _row_exists = 0 WHERE id = 5", True),
        ("UPDATE text = 'x' WHERE id = 5", False),
        ("MATERIALIZE INDEX i", False),
    ],
)
def test_a_mutation_that_deletes_is_known(command: str, removes: bool) -> None:
    server = Server(f"{COLUMNS} {ENGINE}", command)
    assert bool(why_rows_may_be_removed(cast(Replica, server), TABLE)) is removes
    assert server.since == 0
    assert bool(why_not_to_insert_again(cast(Replica, server), TABLE, 7_000)) is removes
    assert server.since == 7


@pytest.mark.parametrize(
    ("clause", "removes", "rolls_up"),
    [
        ("", False, False),
        (" TTL d + toIntervalDay(30)", True, False),
        (" TTL d + toIntervalDay(30) GROUP BY id SET d = max(d)", True, True),
    ],
)
def test_what_a_ttl_deletes_may_be_inserted_again_and_what_it_sums_up_may_not(
    clause: str, removes: bool, rolls_up: bool
) -> None:
    server = cast(Replica, Server(f"{COLUMNS} {ENGINE}{clause}", "MATERIALIZE INDEX i"))
    assert bool(why_rows_may_be_removed(server, TABLE)) is removes
    assert bool(why_not_to_insert_again(server, TABLE, 7_000)) is rolls_up


@dataclass
class Server:
    """Holds one table with one mutation; `since` (Unix seconds) is what was asked for."""

    create: str
    command: str
    since: int | None = None

    def query(self, sql: str, params: dict[str, Any]) -> list[tuple[str]]:
        assert (params["database"], params["name"]) == ("default", "t")
        if "system.mutations" not in sql:
            return [(self.create,)]
        self.since = params["since"]
        return [(self.command,)]
