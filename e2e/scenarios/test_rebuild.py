"""A replica is cloned again on an empty volume: asked for by an annotation, and refused where it would lose data."""

from __future__ import annotations

import pytest

from blockhouse_operator.api.labels import REBUILD_REPLICA, UNREGISTERED
from e2e.scenarios.resources import patched
from e2e.scenarios.site import Site
from e2e.scenarios.state import pods
from e2e.scenarios.test_removal import PARTS, drained, nodes, pipeline_of, replicas

pytestmark = pytest.mark.own_cluster("its pods are played by nodes of KWOK's")


def claim(site: Site, replica: str, namespace: str) -> dict[str, str]:
    found = site.cluster.get("pvc", "-n", namespace)["items"]
    return next((c["metadata"] for c in found if c["metadata"]["name"] == f"data-{replica}"), {})


def pod(site: Site, name: str, replica: str, namespace: str) -> str:
    found: dict[str, str] = {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods(site.cluster, name, namespace)}
    return found.get(f"{replica}-0", "")


@pytest.mark.core
def test_a_replica_is_rebuilt_on_demand_and_only_when_others_have_its_data(site: Site, namespace: str) -> None:
    name, path = "rebuilt", "/clickhouse/rebuilt/db.clicks"
    mine, other = (f"{name}-0-main-{index}" for index in (0, 1))
    with site.operator(), nodes(site, path) as table:
        site.apply(pipeline_of(site, namespace, name, path))
        site.wait_settled(name, namespace)
        table.register(mine, *PARTS)
        table.register(other, PARTS[0])
        before, kept = claim(site, mine, namespace)["uid"], pod(site, name, other, namespace)

        site.cluster.kubectl("annotate", "csi", f"{name}-0", f"{REBUILD_REPLICA}={mine}", "-n", namespace)
        stalled = site.wait_condition(f"{name}-0", namespace, "Stalled", "True", "DataNotElsewhere", kind="csi")
        assert f"{other} lacks 1 part" in stalled["message"]
        assert claim(site, mine, namespace)["uid"] == before

        table.register_part(other, PARTS[1])
        site.wait("it is ended", lambda: drained(site, mine, namespace))
        table.end(mine)
        site.wait("its volume is another one", lambda: claim(site, mine, namespace).get("uid", before) != before)
        site.wait("it is forgotten", lambda: table.replicas() == [other])
        site.wait("its pod is back", lambda: bool(pod(site, name, mine, namespace)), timeout=300)
        site.wait_condition(f"{name}-0", namespace, "Reconciling", "True", "Rebuilding", kind="csi")
        table.register(mine, *PARTS)

        def done() -> bool:
            found = site.cluster.get("csi", f"{name}-0", "-n", namespace)
            noted = REBUILD_REPLICA in found["metadata"].get("annotations", {})
            return not noted and "rebuild" not in found["status"]

        site.wait("the rebuild is over", done)
        site.wait_settled(name, namespace)
        assert pod(site, name, other, namespace) == kept
        reasons = {event["reason"] for event in site.cluster.get("events", "-n", namespace)["items"]}
        assert {"RebuildingReplica", "ReplacingVolume", "ReplicaRebuilt"} <= reasons


def test_a_retained_volume_remembers_that_zookeeper_forgot_its_replica(site: Site, namespace: str) -> None:
    name, path = "retained", "/clickhouse/retained/db.clicks"
    pipeline = patched(pipeline_of(site, namespace, name, path), clickhouse__managed__storage={"size": "1Gi"})
    last = f"{name}-0-main-2"
    with site.operator():
        site.apply(patched(pipeline, zones=[{"name": "main", "replicas": 3}]))
        site.wait_settled(name, namespace)

        site.apply(patched(pipeline, zones=[{"name": "main", "replicas": 2}]))

        site.wait("it is gone", lambda: last not in replicas(site, name, namespace))
        assert claim(site, last, namespace)["annotations"][UNREGISTERED] == "copied"  # type: ignore[index]
