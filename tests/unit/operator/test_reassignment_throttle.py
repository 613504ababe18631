"""The throttle of a KafkaReassignment: capacity by instance type, overrides that end, where load is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blockhouse.errors import Permanent
from blockhouse.fleet.load.static import StaticSource
from blockhouse_operator.adapters.instance_types import LABEL, instance_types
from blockhouse_operator.adapters.kinds import CONFIG_MAP, NODE, POD, SECRET, Kind
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api.load import ThrottleLoad
from blockhouse_operator.api.reassignment import ReassignmentThrottle
from blockhouse_operator.decide.reassignment_throttle import ended_overrides, overrides_of, settings_of
from blockhouse_operator.decide.references import references

MB = 1_000_000


class ApiServer:
    """Objects by kind, namespace and name; a kind in `forbidden` may not be read."""

    def __init__(self, objects: dict[tuple[str, str, str], dict[str, Any]], forbidden: str = "") -> None:
        self._objects = objects
        self._forbidden = forbidden

    async def get(self, kind: Kind, namespace: str, name: str) -> dict[str, Any] | None:
        if kind.name == self._forbidden:
            raise Permanent("403 Forbidden", reason="Forbidden")
        return self._objects.get((kind.name, namespace, name))


def brokers_on_nodes() -> dict[tuple[str, str, str], dict[str, Any]]:
    def pod(node: str | None) -> dict[str, Any]:
        return {"spec": {"nodeName": node}}

    def node(kind: str | None) -> dict[str, Any]:
        return {"metadata": {"labels": {LABEL: kind} if kind else {}}}

    return {
        (POD.name, "kafka", "events-kafka-0"): pod("large"),
        (POD.name, "kafka", "events-kafka-1"): pod("small"),
        (POD.name, "data", "own-2"): pod("small"),
        (POD.name, "kafka", "events-kafka-3"): pod(None),
        (POD.name, "kafka", "events-kafka-4"): pod("unlabelled"),
        (NODE.name, "", "large"): node("m7.4xlarge"),
        (NODE.name, "", "small"): node("m7.large"),
        (NODE.name, "", "unlabelled"): node(None),
    }


HOSTS = {
    0: "events-kafka-0.events-kafka-brokers.kafka.svc.cluster.local",
    1: "events-kafka-1.events-kafka-brokers.kafka.svc",
    2: "own-2.brokers",
    3: "events-kafka-3.events-kafka-brokers.kafka.svc",
    4: "events-kafka-4.events-kafka-brokers.kafka.svc",
    5: "10.0.0.5",
    6: "broker-6",
    7: "b7.example.com",
}


async def test_a_brokers_instance_type_is_its_nodes() -> None:
    api: Any = ApiServer(brokers_on_nodes())
    assert await instance_types(api, HOSTS, "data") == {0: "m7.4xlarge", 1: "m7.large", 2: "m7.large"}


@pytest.mark.parametrize("kind", [POD.name, NODE.name])
async def test_without_the_right_to_read_it_an_instance_type_is_unknown(kind: str) -> None:
    api: Any = ApiServer(brokers_on_nodes(), forbidden=kind)
    assert await instance_types(api, HOSTS, "data") == {}


def throttle(**content: Any) -> ReassignmentThrottle:
    return ReassignmentThrottle.model_validate(content)


def test_capacity_is_the_brokers_own_then_that_of_its_instance_type_then_the_default() -> None:
    capacity = {
        "default": "100M",
        "byBroker": {"1": "150M"},
        "byInstanceType": {"m7.large": "200M", "m7.4xlarge": "10Gbit/s"},
    }
    found = settings_of(throttle(capacity=capacity), {0: "m7.4xlarge", 1: "m7.large", 2: "m7.large", 3: "new"}).capacity
    assert [found.of(id) for id in range(5)] == [1.25e9, 150e6, 200e6, 100e6, 100e6]
    del capacity["default"]
    unknown = settings_of(throttle(capacity=capacity), {3: "new"}).capacity
    assert unknown.of(3) is None, "a type that is not in the list is no reason to guess"


def test_an_override_ends_with_the_plan_it_was_set_for_and_another_rate_is_another_override() -> None:
    given = throttle(
        overrides={
            "everywhere": {"rate": "50M", "autoRemove": True},
            "brokers": {"3": {"rate": "5M", "autoRemove": True}, "4": {"rate": "7M"}},
        }
    )
    before = ended_overrides(given, (), completed=False)
    assert before == ()
    assert overrides_of(given, before).of(1) is not None
    ended = ended_overrides(given, before, completed=True)
    assert ended == ("3 5M", "everywhere 50M")
    assert ended_overrides(given, ended, completed=False) == ended, "and stays ended while a later plan moves"
    later = overrides_of(given, ended)
    assert (later.of(1), later.of(3)) == (None, None)
    assert later.brokers[4].rate == 7 * MB, "one without autoRemove stays"
    changed = throttle(overrides={"everywhere": {"rate": "60M", "autoRemove": True}})
    assert ended_overrides(changed, ended, completed=False) == ()
    assert overrides_of(changed, ended).everywhere is not None


async def load_of(tmp_path: Path, **content: Any) -> Any:
    load = ThrottleLoad.model_validate(content)
    api: Any = ApiServer(
        {
            (SECRET.name, "data", "prometheus"): {"data": {"token": "c2VjcmV0", "ca.crt": "Y2VydA=="}},
            (CONFIG_MAP.name, "data", "rates"): {"data": {"load.yaml": "brokers: {1: {tx: 80M, rx: 40M}}"}},
        }
    )
    contents = Contents(api, "data", tmp_path)
    assert await contents.read(references(load)) == ()
    return contents.load(load)


async def test_load_is_read_from_the_source_that_is_chosen(tmp_path: Path) -> None:
    assert (await load_of(tmp_path)).source == "sampled"
    cruise = await load_of(tmp_path, source="CruiseControl", cruiseControl={"topic": "samples", "lookback": "5m"})
    assert (cruise.source, cruise.cruise_control.topic, cruise.cruise_control.lookback) == (
        "cruiseControl",
        "samples",
        300,
    )
    found = await load_of(
        tmp_path,
        source="Prometheus",
        prometheus={
            "url": "https://prometheus:9090",
            "preset": "grafana-cloud",
            "queries": {"bytesIn": "sum(x)"},
            "window": "60s",
            "bearerTokenSecretRef": {"name": "prometheus", "key": "token"},
            "tls": {"caSecretRef": {"name": "prometheus"}},
        },
    )
    prometheus = found.prometheus
    assert prometheus is not None
    assert (prometheus.preset, prometheus.queries.bytes_in, prometheus.window) == ("grafana-cloud", "sum(x)", 60)
    assert prometheus.bearer_token.read() == "secret"
    assert prometheus.tls.ca_file.read_text() == "cert"
    static = await load_of(tmp_path, source="Static", static={"configMapKeyRef": {"name": "rates", "key": "load.yaml"}})
    assert StaticSource(static.static).sample().brokers[1].tx == 80 * MB


async def test_a_secret_that_is_missing_is_named(tmp_path: Path) -> None:
    reference = {"name": "none", "key": "token"}
    load = ThrottleLoad.model_validate(
        {"source": "Prometheus", "prometheus": {"url": "http://p", "bearerTokenSecretRef": reference}}
    )
    api: Any = ApiServer({})
    assert await Contents(api, "data", tmp_path).read(references(load)) == ("Secret none does not exist",)
