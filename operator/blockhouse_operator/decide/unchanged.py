"""What of a shard a change touched: fields that differ, and whether what was reported before still holds. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from blockhouse_operator.api.base import Part
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec
from blockhouse_operator.api.status import ClickHouseShardIngestStatus
from blockhouse_operator.decide.streams import expected_streams
from blockhouse_operator.desired.spec_hash import former_spec_hash, spec_hash

_KEYS = ("name", "cluster")
"""What distinguishes the items of a list, whose order has no meaning."""


def differences(one: Part, other: Part) -> tuple[str, ...]:
    """Paths of all fields whose values differ, those at their defaults too: `spec.suspend`."""
    mine, theirs = (part.model_dump(mode="json", by_alias=True) for part in (one, other))
    return tuple(_differences(mine, theirs, "spec"))


def _differences(one: Any, other: Any, path: str) -> Iterator[str]:
    if isinstance(one, Mapping) and isinstance(other, Mapping):
        for key in dict.fromkeys([*one, *other]):
            yield from _differences(one.get(key), other.get(key), f"{path}.{key}")
    elif isinstance(one, list) and isinstance(other, list) and (key := _key(one + other)):
        yield from _differences({i[key]: i for i in one}, {i[key]: i for i in other}, path)
    elif one != other:
        yield path


def _key(items: list[Any]) -> str | None:
    for key in _KEYS:
        if items and all(isinstance(item, Mapping) and key in item for item in items):
            return key
    return None


def status_holds(spec: ClickHouseShardIngestSpec, status: ClickHouseShardIngestStatus) -> bool:
    """Whether a status about an earlier spec holds as well for this one: no pod, replica, stream or table is new.

    Then a shard that was ready is ready, although the operator is still at work on what changed.
    """
    replicas = {replica.name for replica in status.replicas}
    hashes = {made(spec, replica) for replica in spec.replicas for made in (spec_hash, former_spec_hash)}
    return (
        not spec.suspend
        and not spec.stop
        and spec.replica_names() <= replicas
        and status.revision in hashes
        and {table.name for table in spec.tables} <= {table.name for table in status.tables}
        and status.streams.expected == len(expected_streams(spec))
    )
