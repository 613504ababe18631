"""What people do to a pipeline's objects by hand at night, and what must not come of it."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.scenarios.resources import Manifest, at_home, example, patched
from e2e.scenarios.site import Site
from e2e.scenarios.state import children, pods

pytestmark = pytest.mark.own_cluster("its pods are played by nodes of KWOK's")


def pipeline_of(site: Site, namespace: str, name: str, **changes: Any) -> Manifest:
    pipeline = at_home(example(), site.surroundings, name=name, namespace=namespace)
    storage = {"size": "1Gi", "deletionPolicy": "Delete"}
    changes = {"shards": 1, "verifier": {"enabled": False}, "clickhouse__managed__storage": storage, **changes}
    return patched(pipeline, **changes)


def claims(site: Site, name: str, namespace: str) -> dict[str, str]:
    """Volume claims by name, with their UIDs; those that are ending are left out."""
    found = [child for child in children(site.cluster, name, namespace) if child["kind"] == "PersistentVolumeClaim"]
    return {c["metadata"]["name"]: c["metadata"]["uid"] for c in found if not c["metadata"].get("deletionTimestamp")}


@pytest.mark.core
def test_a_shard_that_is_suspended_by_hand_is_resumed_and_the_pipeline_reports_nothing_untrue(
    site: Site, namespace: str
) -> None:
    name = "drift"
    with site.operator():
        site.apply(pipeline_of(site, namespace, name))
        site.wait_settled(name, namespace)
        patch = '{"spec": {"suspend": true, "networkPolicy": {"enabled": false}}}'

        def reverted() -> list[str]:
            events = site.cluster.get("events", "-n", namespace)["items"]
            return [event["message"] for event in events if event["reason"] == "DriftReverted"]

        site.cluster.kubectl("patch", "csi", f"{name}-0", "-n", namespace, "--type=merge", "-p", patch)

        site.wait(
            "its spec is the pipeline's again",
            lambda: not site.cluster.get("csi", f"{name}-0", "-n", namespace)["spec"].get("suspend"),
            timeout=60,
        )
        site.wait_settled(name, namespace)
        site.wait("an Event names what was restored", lambda: bool(reverted()), timeout=60)
        assert site.cluster.get("csi", f"{name}-0", "-n", namespace)["spec"]["networkPolicy"]["enabled"] is True
        assert site.condition("ba", name, namespace, "Suspended") == {}
        events = site.cluster.get("events", "-n", namespace)["items"]
        about = [e["message"] for e in events if e["involvedObject"]["kind"] == "BlockAggregator"]
        assert not [message for message in about if "spec.suspend is true" in message]
        assert "spec.suspend" in reverted()[0]


@pytest.mark.core
def test_a_shard_that_is_deleted_by_hand_comes_back_with_its_volumes(site: Site, namespace: str) -> None:
    name = "again"
    with site.operator():
        site.apply(pipeline_of(site, namespace, name))
        site.wait_settled(name, namespace)
        before = claims(site, name, namespace)
        uid = site.cluster.get("csi", f"{name}-0", "-n", namespace)["metadata"]["uid"]

        site.cluster.kubectl("delete", "csi", f"{name}-0", "-n", namespace, "--timeout=60s")

        def back() -> bool:
            found = site.cluster.get("csi", "-n", namespace)["items"]
            return bool(found and found[0]["metadata"]["uid"] != uid)

        def owners() -> set[str]:
            found = children(site.cluster, name, namespace)
            return {owner["uid"] for child in found for owner in child["metadata"].get("ownerReferences", ())}

        site.wait("its resource is back", back)
        # Kubernetes takes its time to look for what has no owner any more.
        site.wait("nothing of the deleted one is left", lambda: uid not in owners())
        site.wait_settled(name, namespace)
        assert len(before) == 4
        assert claims(site, name, namespace) == before, "the policy is Delete, and the pipeline was not deleted"


def test_the_volumes_of_a_removed_shard_and_of_a_deleted_pipeline_go_where_the_policy_has_them(
    site: Site, namespace: str
) -> None:
    name = "gone"
    pipeline = pipeline_of(site, namespace, name, shards=2)
    with site.operator():
        site.apply(pipeline)
        site.wait_settled(name, namespace)
        assert len(claims(site, name, namespace)) == 8

        site.apply(patched(pipeline, shards=1, shardRemovalPolicy="Drain"))

        site.wait("the volumes of shard 1 are gone", lambda: len(claims(site, name, namespace)) == 4, timeout=300)
        assert {claim.split("-")[2] for claim in claims(site, name, namespace)} == {"0"}
        site.cluster.kubectl("delete", "ba", name, "-n", namespace, "--timeout=300s", timeout=330)
        site.wait("all volumes are gone", lambda: not claims(site, name, namespace), timeout=300)


@pytest.mark.core
def test_ready_stays_true_through_a_change_that_restarts_nothing(site: Site, namespace: str) -> None:
    name = "steady"
    pipeline = pipeline_of(site, namespace, name, shards=2)
    with site.operator():
        site.apply(pipeline)
        site.wait_settled(name, namespace)
        before = {pod["metadata"]["uid"] for pod in pods(site.cluster, name, namespace)}
        since = site.condition("ba", name, namespace, "Ready")["lastTransitionTime"]

        site.apply(
            patched(pipeline, rollout={"maxParallelShards": 2}, kafka__topic__config={"retention.ms": "9000000"})
        )
        site.wait_settled(name, namespace)

        assert site.condition("ba", name, namespace, "Ready")["lastTransitionTime"] == since
        assert {pod["metadata"]["uid"] for pod in pods(site.cluster, name, namespace)} == before
        events = site.cluster.get("events", "-n", namespace)["items"]
        about = [e["message"] for e in events if e["involvedObject"]["kind"] == "BlockAggregator"]
        assert sum(message.startswith("Ready is True") for message in about) == 1
