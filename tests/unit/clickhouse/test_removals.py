"""Tables whose rows may have been removed on purpose are known by their TTL and by their mutations."""

from __future__ import annotations

from typing import Any, cast

import pytest

from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.removals import removing_ttl, why_rows_may_be_removed
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
    class Server:
        def query(self, sql: str, params: Any) -> list[tuple[str]]:
            assert params == {"database": "default", "name": "t"}
            return [(command,)] if "system.mutations" in sql else [(f"{COLUMNS} {ENGINE}",)]

    assert bool(why_rows_may_be_removed(cast(Replica, Server()), TABLE)) is removes
