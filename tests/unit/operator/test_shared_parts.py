"""Equal parts of thousands of resources are one object, as long as a resource has it."""

from __future__ import annotations

import copy
import gc
from datetime import date
from typing import Any

import pytest

from blockhouse_operator.api import resource
from blockhouse_operator.api.base import Shared
from blockhouse_operator.api.resource import InvalidSpec, parse_shard_ingest
from blockhouse_operator.desired.aggregator import shard_ingest
from tests.unit.operator.resources import pipeline


def shard(number: int, **kafka: Any) -> dict[str, Any]:
    found = copy.deepcopy(shard_ingest(pipeline(), number))
    found["spec"]["kafka"]["clusters"][0] |= kafka
    return found


def test_what_shards_have_in_common_is_one_object() -> None:
    first, second = parse_shard_ingest(shard(0)).spec, parse_shard_ingest(shard(1)).spec

    assert first.shard != second.shard
    assert first.clickhouse is second.clickhouse
    assert first.kafka.topic != second.kafka.topic
    assert first.kafka.clusters[0] is second.kafka.clusters[0]


def test_what_differs_does_not() -> None:
    first = parse_shard_ingest(shard(0)).spec
    second = parse_shard_ingest(shard(0, bootstrapServers="elsewhere:9092")).spec

    assert second.kafka.clusters[0].bootstrap_servers == "elsewhere:9092"
    assert first.kafka.clusters[0].bootstrap_servers != "elsewhere:9092"
    assert first.kafka.clusters[1] is second.kafka.clusters[1]


def test_what_is_wrong_is_found_each_time() -> None:
    for _ in range(2):
        with pytest.raises(InvalidSpec, match=r"spec\.kafka\.clusters\[0\]"):
            parse_shard_ingest(shard(0, bootstrapServers=""))


def test_what_is_no_json_is_refused_in_the_same_words() -> None:
    """YAML makes a date of 2026-01-01."""
    with pytest.raises(InvalidSpec, match=r"bootstrapServers: should be a valid string"):
        parse_shard_ingest(shard(0, bootstrapServers=date(2026, 1, 1)))


def test_what_no_resource_has_any_more_is_forgotten(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "_SHARED", Shared())
    parsed = parse_shard_ingest(shard(0))
    assert len(resource._SHARED) > 10

    del parsed
    gc.collect()

    assert len(resource._SHARED) == 0
