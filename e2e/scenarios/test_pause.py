"""Reconciliation is paused: the audit log shows that nothing of the pipeline is written, and it can be deleted."""

from __future__ import annotations

import pytest

from e2e.cluster import ClusterError
from e2e.cluster.audit import Request
from e2e.scenarios.resources import at_home, example, patched
from e2e.scenarios.site import Site
from e2e.scenarios.state import children, pods

NAME = "paused"


def written(site: Site, since: int) -> list[Request]:
    """What operators wrote, but for statuses and Events."""
    return [r for r in site.writes(since) if not r.resource.endswith("/status") and r.resource != "events"]


def reads(site: Site, since: int) -> int:
    """How often the operator has read pipelines."""
    return sum(r.resource == "blockaggregators" and not r.writes for r in site.cluster.audit.requests(since=since))


@pytest.mark.own_cluster("the audit log is the judge")
@pytest.mark.core
def test_nothing_of_a_paused_pipeline_is_written_and_it_continues(site: Site, namespace: str) -> None:
    pipeline = at_home(example(), site.surroundings, name=NAME, namespace=namespace)
    pipeline = patched(pipeline, shards=1, verifier={"enabled": False})
    changed = patched(pipeline, shards=2, aggregator__image="blockhouse/aggregator:other")
    with site.operator():
        site.apply(pipeline)
        site.wait_settled(NAME, namespace)
        before = {pod["metadata"]["uid"] for pod in pods(site.cluster, NAME, namespace)}
        site.apply(patched(pipeline, paused=True))
        site.wait_condition(NAME, namespace, "Paused", "True", "Paused")
        site.wait_condition(f"{NAME}-0", namespace, "Paused", "True", "Paused", kind="csi")
        mark = site.cluster.audit.mark()

        site.cluster.kubectl("delete", "service", f"{NAME}-0-dc-a-0", "-n", namespace)
        site.apply(patched(changed, paused=True))
        behind = site.wait_condition(NAME, namespace, "Reconciling", "True", "Paused")

        assert "spec.paused" in behind["message"]
        looked = site.cluster.audit.mark()
        site.wait("the operator reads it again and again", lambda: reads(site, looked) >= 4)
        assert written(site, mark) == []
        assert {pod["metadata"]["uid"] for pod in pods(site.cluster, NAME, namespace)} == before

        site.apply(changed)
        site.wait_settled(NAME, namespace)
        assert site.condition("ba", NAME, namespace, "Paused") == {}
        site.cluster.get("service", f"{NAME}-0-dc-a-0", "-n", namespace)
        now = pods(site.cluster, NAME, namespace)
        assert len(now) == 8
        assert before.isdisjoint(pod["metadata"]["uid"] for pod in now)


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
def test_a_paused_pipeline_can_be_deleted(site: Site, namespace: str) -> None:
    name = "leaves"
    pipeline = at_home(example(), site.surroundings, name=name, namespace=namespace)
    pipeline = patched(pipeline, shards=1, verifier={"enabled": False})
    with site.operator():
        site.apply(pipeline)
        site.wait_settled(name, namespace)
        site.apply(patched(pipeline, paused=True))
        site.wait_condition(name, namespace, "Paused", "True")
        site.cluster.kubectl("delete", "ba", name, "-n", namespace, "--timeout=120s", timeout=150)

        def gone() -> bool:
            kinds = {child["kind"] for child in children(site.cluster, name, namespace)}
            return kinds <= {"PersistentVolumeClaim"}

        site.wait("only its volumes are left", gone, timeout=300)
        with pytest.raises(ClusterError):
            site.cluster.get("csi", f"{name}-0", "-n", namespace)
