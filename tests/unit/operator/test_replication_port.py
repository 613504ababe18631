"""A pipeline whose replication port is open to other networks without a password reports it."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR
from blockhouse_operator.api.resource import parse_block_aggregator
from blockhouse_operator.decide.replication_port import open_replication_port
from e2e.memory.fleet import NAME, NAMESPACE, Fleet
from tests.unit.operator.resources import ROOT, block_aggregator, pipeline

HOST = ("spec.zones.1.hostTemplate", "{replica}.dc-b.example.net")
BALANCER = ("spec.template.replicaService.type", "LoadBalancer")
PASSWORD = ("spec.clickhouse.managed.interserverSecretRef", {"name": "interserver"})
TLS = ("spec.clickhouse.managed.tls", {"secretRef": {"name": "tls"}, "mode": "Required"})


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ((HOST,), "port 9009 of replicas is open to other networks (hostTemplate of zone dc-b)"),
        ((BALANCER,), "(template.replicaService.type LoadBalancer)"),
        ((HOST, TLS), "port 9010"),
    ],
)
def test_it_is_named_with_what_opens_it(changes: tuple[tuple[str, Any], ...], named: str) -> None:
    assert named in open_replication_port(pipeline(*changes).spec)


@pytest.mark.parametrize("changes", [(), (PASSWORD,), (HOST, BALANCER, PASSWORD)])
def test_one_that_is_not_reachable_or_has_a_password_is_not(changes: tuple[tuple[str, Any], ...]) -> None:
    assert open_replication_port(pipeline(*changes).spec) == ""


def test_no_example_opens_it() -> None:
    for path in (ROOT / "examples").glob("*.yaml"):
        if next(iter(yaml.safe_load_all(path.read_text())))["kind"] == "BlockAggregator":
            assert open_replication_port(parse_block_aggregator(block_aggregator(path=path)).spec) == "", path.name


async def test_it_is_in_the_condition_ready_and_an_event_once(tmp_path: Path) -> None:
    fleet = Fleet(1, tmp_path)
    found = copy.deepcopy(fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME])
    found["spec"]["zones"][0]["hostTemplate"] = "{replica}.dc-a.example.net"
    fleet.api.put(BLOCK_AGGREGATOR.plural, found)
    with fleet.kafka.here():
        async with fleet.watched():
            await fleet.settle()
            await fleet.both()

    status = fleet.api.of(BLOCK_AGGREGATOR.plural)[NAMESPACE, NAME]["status"]
    ready = next(each for each in status["conditions"] if each["type"] == "Ready")
    assert ready["status"] == "True"
    assert "hostTemplate of zone dc-a" in ready["message"]
    events = [event for event in fleet.api.of("events").values() if event["reason"] == "ReplicationPortOpen"]
    assert [event["type"] for event in events] == ["Warning"]
    assert events[0].get("count", 1) == 1
