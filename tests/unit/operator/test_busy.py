"""How many shards are being changed is read from their statuses, so that every leader counts the same."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse_operator.reconcile.busy import busy_shards


def counted(*others: dict[str, Any]) -> int:
    """Busy shards beside shard `p-0`, which holds a table itself."""
    own = {"metadata": {"name": "p-0"}, "status": {"tables": [{"name": "db.t", "heldSince": "2026-01-01T00:00:00Z"}]}}
    shards = [own] + [
        {"metadata": {"name": f"p-{number}"}, "status": status} for number, status in enumerate(others, start=1)
    ]

    async def listed(*_: object) -> list[dict[str, Any]]:
        return shards

    services: Any = SimpleNamespace(kubernetes=SimpleNamespace(list=listed))
    shard: Any = SimpleNamespace(name="p-0", namespace="ns", spec=SimpleNamespace(pipeline="p"))
    return asyncio.run(busy_shards(services, shard))


@pytest.mark.parametrize(
    ("status", "busy"),
    [
        ({}, 0),
        ({"rollout": None, "tables": [{"name": "db.t", "heldSince": ""}]}, 0),
        ({"rollout": {"replica": "p-1-a-0"}}, 1),
        ({"tables": [{"name": "db.t", "heldSince": ""}, {"name": "db.u", "heldSince": "2026-01-01T00:00:00Z"}]}, 1),
        ({"rollout": {"replica": "p-1-a-0"}, "tables": [{"name": "db.t", "heldSince": "2026-01-01T00:00:00Z"}]}, 1),
    ],
)
def test_a_shard_is_busy_while_a_replica_restarts_or_a_table_is_held(status: dict[str, Any], busy: int) -> None:
    assert counted(status) == busy


def test_only_other_shards_are_counted() -> None:
    restarting = {"rollout": {"replica": "any"}}
    assert counted(restarting, {}, restarting) == 2
