"""Volumes that are lost, empty, broken, or back after ZooKeeper has forgotten them: registered again, or replaced where
others have the data, or refused. The servers of most are played with their volumes (`e2e/simulator/clickhouse.py`)."""

from __future__ import annotations

import pytest

from blockhouse_operator.api.labels import ACCEPT_DATA_LOSS, REBUILD_REPLICA, UNREGISTERED
from e2e.cluster import Cluster
from e2e.cluster.nodes import fake_nodes
from e2e.cluster.volumes import storage_class
from e2e.scenarios.resources import Manifest, patched
from e2e.scenarios.site import Site
from e2e.scenarios.state import pods
from e2e.scenarios.story import Story
from e2e.scenarios.test_removal import PARTS, Nodes, drained, nodes, pipeline_of, replicas
from e2e.simulator.pods import CLICKHOUSE

pytestmark = pytest.mark.own_cluster("its pods are played by nodes of KWOK's")

OLDEST, CURRENT = "18.16", "26.9"
MERGED, LATER = ("all_0_5_2",), "all_6_6_0"
"""What others have instead of PARTS, and what they got while a replica was not there."""


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


def played(site: Site, namespace: str, name: str, version: str, count: int, **storage: str) -> Manifest:
    """A pipeline of so many replicas whose servers are played, with volumes that outlive them."""
    pipeline = pipeline_of(site, namespace, name, f"/clickhouse/{name}/db.clicks")
    annotations = {"metadata": {"annotations": {CLICKHOUSE: version}}}
    return patched(
        pipeline,
        zones=[{"name": "main", "replicas": count}],
        template={"pod": annotations},
        clickhouse__managed__storage={"size": "1Gi", **storage},
    )


def scaled(pipeline: Manifest, count: int) -> Manifest:
    return patched(pipeline, zones=[{"name": "main", "replicas": count}])


def events(site: Site, namespace: str) -> set[str]:
    return {event["reason"] for event in site.cluster.get("events", "-n", namespace)["items"]}


def note(site: Site, replica: str, namespace: str) -> str:
    """Whether others had the data of a volume when ZooKeeper forgot it; empty while it has not."""
    found: dict[str, str] = claim(site, replica, namespace).get("annotations", {})  # type: ignore[assignment]
    return found.get(UNREGISTERED, "")


def accept_loss(site: Site, name: str, replica: str, namespace: str) -> None:
    site.cluster.kubectl("annotate", "csi", f"{name}-0", f"{ACCEPT_DATA_LOSS}={replica}", "-n", namespace)


def remove_last(site: Site, pipeline: Manifest) -> None:
    """3 -> 2 replicas; until nothing but the volume of the last one is left."""
    name, namespace = pipeline["metadata"]["name"], pipeline["metadata"]["namespace"]
    site.apply(scaled(pipeline, 2))
    site.wait("it is gone", lambda: f"{name}-0-main-2" not in replicas(site, name, namespace))
    site.wait_settled(name, namespace)


def check_whole(table: Nodes, replicas: list[str], *parts: str) -> None:
    assert table.replicas() == replicas
    assert [table.parts(replica) for replica in replicas] == [set(parts)] * len(replicas)


def test_a_volume_that_returns_is_registered_again_by_a_server_that_can(site: Site, namespace: str) -> None:
    """3 -> 2 -> 3 replicas."""
    name = "returning"
    pipeline = played(site, namespace, name, CURRENT, 3)
    every = [f"{name}-0-main-{index}" for index in range(3)]
    with site.operator(), nodes(site, f"/clickhouse/{name}/db.clicks") as table:
        site.apply(pipeline)
        site.wait_settled(name, namespace)
        for replica, parts in zip(every, (MERGED, MERGED, PARTS), strict=True):
            for part in parts:
                table.register_part(replica, part)
        uid, first = claim(site, every[2], namespace)["uid"], pod(site, name, every[0], namespace)
        remove_last(site, pipeline)
        assert table.replicas() == every[:2]
        assert note(site, every[2], namespace) == "copied"
        for replica in every[:2]:
            table.register_part(replica, LATER)

        site.apply(pipeline)

        site.wait("it is registered again", lambda: table.replicas() == every, timeout=90)
        site.wait("that is noted", lambda: not note(site, every[2], namespace))
        site.wait_settled(name, namespace)
        assert table.parts(every[2]) == {*PARTS, *MERGED, LATER}, "what is on its volume, and what it missed"
        assert claim(site, every[2], namespace)["uid"] == uid
        assert pod(site, name, every[0], namespace) == first
        assert "ReplicaRestored" in events(site, namespace)
        assert "ReplacingVolume" not in events(site, namespace)


def test_a_volume_that_returns_to_an_old_server_is_replaced_by_what_others_have(site: Site, namespace: str) -> None:
    name = "replaced"
    pipeline = played(site, namespace, name, OLDEST, 3)
    every = [f"{name}-0-main-{index}" for index in range(3)]
    with site.operator(), nodes(site, f"/clickhouse/{name}/db.clicks") as table:
        site.apply(pipeline)
        site.wait_settled(name, namespace)
        for replica in every:
            table.register_part(replica, PARTS[0])
        uid = claim(site, every[2], namespace)["uid"]
        remove_last(site, pipeline)

        site.apply(pipeline)

        site.wait("its volume is another one", lambda: claim(site, every[2], namespace).get("uid", uid) != uid)
        site.wait("it is cloned", lambda: table.replicas() == every)
        site.wait("it is over", lambda: "ReplicaRebuilt" in events(site, namespace))
        site.wait_settled(name, namespace)
        check_whole(table, every, PARTS[0])
        assert {"RebuildingReplica", "ReplacingVolume"} <= events(site, namespace)


def test_a_volume_that_returns_with_the_only_copy_is_not_replaced_by_an_acceptance_of_before(
    site: Site, namespace: str
) -> None:
    name = "onlycopy"
    pipeline = played(site, namespace, name, OLDEST, 3)
    every = [f"{name}-0-main-{index}" for index in range(3)]
    with site.operator(), nodes(site, f"/clickhouse/{name}/db.clicks") as table:
        site.apply(pipeline)
        site.wait_settled(name, namespace)
        for replica, parts in zip(every, (PARTS[:1], PARTS[:1], PARTS), strict=True):
            for part in parts:
                table.register_part(replica, part)
        uid = claim(site, every[2], namespace)["uid"]
        site.apply(scaled(pipeline, 2))
        site.wait_condition(f"{name}-0", namespace, "Reconciling", "True", "Draining", kind="csi")
        accept_loss(site, name, every[2], namespace)
        remove_last(site, pipeline)
        assert note(site, every[2], namespace) == "not-copied"

        site.apply(pipeline)

        stalled = site.wait_condition(
            f"{name}-0", namespace, "Stalled", "True", "DataNotElsewhere", kind="csi", timeout=120
        )
        assert "it was removed before others had its data" in stalled["message"]
        assert claim(site, every[2], namespace)["uid"] == uid
        accept_loss(site, name, every[2], namespace)
        site.wait("it is cloned", lambda: table.replicas() == every)
        site.wait("it is over", lambda: "ReplicaRebuilt" in events(site, namespace))
        site.wait_settled(name, namespace)
        check_whole(table, every, PARTS[0])
        assert claim(site, every[2], namespace)["uid"] != uid


def test_a_volume_that_was_lost_is_cloned_once_others_are_proven_to_have_its_data(site: Site, namespace: str) -> None:
    """Its claim and its pod are deleted by hand, and come back."""
    name = "emptied"
    mine, other = every = [f"{name}-0-main-{index}" for index in (0, 1)]
    with (
        site.operator(),
        nodes(site, f"/clickhouse/{name}/db.clicks") as table,
        Story(site.cluster.kubeconfig) as story,
    ):
        site.apply(played(site, namespace, name, CURRENT, 2))
        site.wait_settled(name, namespace)
        for replica, parts in ((mine, PARTS), (other, PARTS[:1])):
            for part in parts:
                table.register_part(replica, part)
        kept = pod(site, name, other, namespace)

        site.cluster.kubectl("delete", "pvc", f"data-{mine}", "-n", namespace, "--wait=false")
        site.cluster.kubectl("delete", "pod", f"{mine}-0", "-n", namespace, "--wait=false")

        stalled = site.wait_condition(f"{name}-0", namespace, "Stalled", "True", "DataNotElsewhere", kind="csi")
        assert "its volume is empty" in stalled["message"]
        assert f"{other} lacks 1 part" in stalled["message"]
        assert table.replicas() == every, "its registration is all that is known of its rows"
        assert table.parts(mine) == set(PARTS)
        assert "RebuildingReplica" not in story.reasons("Event", f"csi/{name}-0")

        table.register_part(other, PARTS[1])

        site.wait("it is over", lambda: "ReplicaRebuilt" in story.reasons("Event", f"csi/{name}-0"))
        site.wait_settled(name, namespace)
        check_whole(table, every, *PARTS)
        assert pod(site, name, other, namespace) == kept
        assert "RebuildingReplica" in story.reasons("Event", f"csi/{name}-0")
        assert "Rebuilding" in story.reasons("Reconciling", f"csi/{name}-0")


@pytest.mark.long
def test_a_replica_whose_node_is_lost_with_its_local_volume_is_cloned_on_another(site: Site, namespace: str) -> None:
    name = "nodeless"
    mine, other = every = [f"{name}-0-main-{index}" for index in (0, 1)]
    site.apply(storage_class("local", local=True))
    pipeline = played(site, namespace, name, CURRENT, 2, className="local")
    apart = {"maxSkew": 1, "topologyKey": "kubernetes.io/hostname", "whenUnsatisfiable": "DoNotSchedule"}
    pipeline["spec"]["template"]["pod"]["topologySpreadConstraints"] = [apart]
    with site.operator(), nodes(site, f"/clickhouse/{name}/db.clicks") as table:
        site.apply(pipeline)
        site.wait_settled(name, namespace)
        for replica in every:
            table.register_part(replica, PARTS[0])
        places = {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods(site.cluster, name, namespace)}
        lost, uid = places[f"{mine}-0"], claim(site, mine, namespace)["uid"]

        try:
            lose_node(site, lost, f"pvc-{uid}")

            site.wait("its volume is another one", lambda: claim(site, mine, namespace).get("uid", uid) != uid)
            site.wait("it is over", lambda: "ReplicaRebuilt" in events(site, namespace))
            site.wait_settled(name, namespace)
        finally:
            assert isinstance(site.cluster, Cluster)
            site.apply(*(node for node in fake_nodes(site.cluster.spec.zones) if node["metadata"]["name"] == lost))
        check_whole(table, every, PARTS[0])
        after = {p["metadata"]["name"]: p["spec"]["nodeName"] for p in pods(site.cluster, name, namespace)}
        assert after[f"{mine}-0"] != lost
        assert after[f"{other}-0"] == places[f"{other}-0"]


def lose_node(site: Site, node: str, volume: str) -> None:
    """A machine that does not come back is taken out, and the volume on its disk, by a person."""
    site.cluster.kubectl("delete", "node", node)
    site.cluster.kubectl("delete", "pv", volume, "--wait=false")
    site.cluster.kubectl("patch", "pv", volume, "--type=merge", "-p", '{"metadata": {"finalizers": null}}')
