"""Wishes that cannot be fulfilled, or not yet: they can be taken back, and what is refused is asked later each time."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from datetime import datetime
from itertools import pairwise
from typing import Any

import pytest

from e2e.cluster import Request
from e2e.cluster.volumes import storage_class
from e2e.scenarios.resources import Manifest, patched
from e2e.scenarios.site import Site
from e2e.scenarios.state import children, pods
from e2e.scenarios.test_by_hand import pipeline_of

pytestmark = pytest.mark.own_cluster("its pods are played by nodes of KWOK's, and Kafka is frozen")

CLAIMS = "persistentvolumeclaims"
LATER = 8.0
"""Seconds after which a write that is refused again and again is tried once more, in the end."""
UNTIL_LATER = 8
"""Attempts until then: half a second to one, and twice as long each time."""


def of_size(pipeline: Manifest, size: str) -> Manifest:
    storage = pipeline["spec"]["clickhouse"]["managed"]["storage"] | {"size": size}
    return patched(pipeline, clickhouse__managed__storage=storage)


def asked(site: Site, name: str, namespace: str) -> set[str]:
    """Sizes that the volume claims ask for."""
    found = [child for child in children(site.cluster, name, namespace) if child["kind"] == "PersistentVolumeClaim"]
    return {claim["spec"]["resources"]["requests"]["storage"] for claim in found}


def refusals(site: Site, namespace: str, since: int) -> list[Request]:
    """Writes of volume claims that the API server refused."""
    found = [request for request in site.writes(since) if (request.resource, request.namespace) == (CLAIMS, namespace)]
    return [request for request in found if request.code >= 400]


@contextmanager
def undisturbed(site: Site, name: str, namespace: str) -> Iterator[None]:
    """No pod is another one afterwards, and Ready was true all the time."""

    def state() -> tuple[set[str], str]:
        uids = {pod["metadata"]["uid"] for pod in pods(site.cluster, name, namespace)}
        return uids, site.condition("ba", name, namespace, "Ready")["lastTransitionTime"]

    before = state()
    yield
    assert state() == before


def test_a_size_is_taken_back_before_the_volume_has_grown(site: Site, namespace: str) -> None:
    name = "grown"
    site.apply(storage_class("slowly", local=True))
    storage = {"size": "1Gi", "className": "slowly", "deletionPolicy": "Delete"}
    pipeline = pipeline_of(site, namespace, name, clickhouse__managed__storage=storage)
    with site.operator():
        site.apply(pipeline)
        site.wait_settled(name, namespace)
        began = site.cluster.audit.mark()
        with undisturbed(site, name, namespace):
            site.apply(of_size(pipeline, "3Gi"))
            site.wait("it is asked for", lambda: asked(site, name, namespace) == {"3Gi"}, timeout=60)
            site.apply(of_size(pipeline, "2Gi"))
            site.wait("less is asked for", lambda: asked(site, name, namespace) == {"2Gi"}, timeout=60)
            site.apply(pipeline)
            site.wait_settled(name, namespace)

            assert asked(site, name, namespace) == {"2Gi"}, "a claim cannot ask for what its volume has already"
            assert site.condition("ba", name, namespace, "Stalled") == {}
        assert refusals(site, namespace, began) == []


def test_a_size_that_is_refused_is_asked_for_later_each_time_until_it_is_taken_back(site: Site, namespace: str) -> None:
    name = "fixed"
    site.apply(storage_class("fixed", grows=False))
    storage = {"size": "1Gi", "className": "fixed", "deletionPolicy": "Delete"}
    pipeline = pipeline_of(site, namespace, name, clickhouse__managed__storage=storage)
    claim = f"data-{name}-0-dc-a-0"
    with site.operator():
        site.apply(pipeline)
        site.wait_settled(name, namespace)
        began = site.cluster.audit.mark()

        def attempts() -> list[datetime]:
            return [datetime.fromisoformat(one.at) for one in refusals(site, namespace, began) if one.name == claim]

        def gaps() -> list[float]:
            return [(later - earlier).total_seconds() for earlier, later in pairwise(attempts())]

        with undisturbed(site, name, namespace):
            site.apply(of_size(pipeline, "2Gi"))
            site.wait_condition(f"{name}-0", namespace, "Stalled", "True", "Forbidden", kind="csi")
            site.wait("it is tried later", lambda: max(gaps(), default=0.0) >= LATER, timeout=90, show=gaps)
            assert len(attempts()) <= UNTIL_LATER

            site.apply(pipeline)
            site.wait_settled(name, namespace)
            assert asked(site, name, namespace) == {"1Gi"}
            assert site.condition("csi", f"{name}-0", namespace, "Stalled") == {}


def test_partitions_are_taken_back_before_any_kafka_cluster_could_add_them(site: Site, namespace: str) -> None:
    """While the earlier request is still on its way to clusters that do not answer."""
    name = "thought"
    pipeline = pipeline_of(site, namespace, name)
    with site.operator():
        site.apply(pipeline)
        site.wait_settled(name, namespace)

        def shard() -> dict[str, Any]:
            found: dict[str, Any] = site.cluster.get("csi", f"{name}-0", "-n", namespace)
            return found

        def topics() -> dict[str, int]:
            return {topic["cluster"]: topic["partitions"] for topic in shard()["status"]["topics"]}

        def asked(partitions: int) -> bool:
            found = shard()
            seen = found["status"]["observedGeneration"] == found["metadata"]["generation"]
            return bool(seen and found["spec"]["kafka"]["topic"]["partitions"] == partitions)

        uids = {pod["metadata"]["uid"] for pod in pods(site.cluster, name, namespace)}
        with ExitStack() as frozen:
            for broker in (broker for cluster in site.surroundings.kafka.values() for broker in cluster.brokers):
                broker.freeze()
                frozen.callback(broker.thaw)
            site.apply(patched(pipeline, kafka__topic__partitions=8))
            site.wait("it is asked for", lambda: asked(8))
            site.apply(pipeline)
            site.wait("it is taken back", lambda: asked(4))
        site.wait_settled(name, namespace)

        site.wait_condition(name, namespace, "TopicsProvisioned", "True", "AsSpecified")
        assert topics() == {"a": 4, "b": 4}
        assert {pod["metadata"]["uid"] for pod in pods(site.cluster, name, namespace)} == uids
