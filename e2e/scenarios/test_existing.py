"""Aggregators beside a ClickHouse that the user deploys: nothing but aggregators, nothing of theirs touched."""

from __future__ import annotations

import pytest

from e2e.scenarios.resources import at_home, example, patched, secret
from e2e.scenarios.site import Site
from e2e.scenarios.state import children, pods

NAME = "orders"


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
def test_a_pipeline_beside_an_existing_clickhouse(site: Site, namespace: str) -> None:
    theirs = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "chi-orders-main-0-0", "namespace": namespace},
        "spec": {"ports": [{"port": 9000}], "selector": {"clickhouse.altinity.com/chi": "orders"}},
    }
    logins = [secret(name, namespace, password="p") for name in ("clickhouse-loader", "zookeeper-login")]
    site.apply(theirs, *logins)
    before = site.cluster.get("service", "chi-orders-main-0-0", "-n", namespace)
    began = site.cluster.audit.mark()
    pipeline = at_home(example("existing-clickhouse"), site.surroundings, namespace=namespace)
    with site.operator():
        site.apply(patched(pipeline, shards=1))
        site.wait_ready(NAME, namespace)
        made = {child["kind"] for child in children(site.cluster, NAME, namespace)}
        containers = {c["name"] for pod in pods(site.cluster, NAME, namespace) for c in pod["spec"]["containers"]}
    assert containers == {"aggregator", "verifier"}
    assert "PersistentVolumeClaim" not in made
    assert site.cluster.get("service", "chi-orders-main-0-0", "-n", namespace) == before
    assert site.refused(began) == []
