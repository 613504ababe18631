"""A newer operator, which would make pods otherwise, restarts none that runs: what it would change waits."""

from __future__ import annotations

from typing import Any

import pytest

from e2e.scenarios.resources import at_home, companions, example, patched
from e2e.scenarios.site import Site
from e2e.scenarios.state import pods, templates, variables
from e2e.scenarios.version import FORMER_VARIABLE, LATER_VARIABLE, OURS, Version

NAME = "upgraded"


def replica_pods(site: Site, namespace: str) -> dict[str, dict[str, Any]]:
    return {
        pod["metadata"]["name"]: pod
        for pod in pods(site.cluster, NAME, namespace)
        if "verifier" not in pod["metadata"]["name"]
    }


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
def test_an_upgrade_restarts_no_pod(site: Site, newer: Version) -> None:
    namespace = site.namespace("upgrade")
    site.apply(*companions(namespace))
    pipeline = patched(at_home(example(), site.surroundings, name=NAME, namespace=namespace), shards=1)
    with site.operator():
        site.apply(pipeline)
        site.wait_ready(NAME, namespace)
    before = {name: pod["metadata"]["uid"] for name, pod in replica_pods(site, namespace).items()}

    site.version = newer
    try:
        site.install("--set", "resources.limits.memory=600Mi", "--set", "logLevel=debug")
        with site.operator():
            site.wait(
                "the templates are those of the newer operator",
                lambda: all(LATER_VARIABLE in t for t in templates(site.cluster, NAME, namespace)),
                timeout=120,
            )
            found = site.wait_ready(NAME, namespace)
            assert found["status"]["replicas"]["updated"] == found["status"]["replicas"]["desired"] == len(before)
            assert {n: p["metadata"]["uid"] for n, p in replica_pods(site, namespace).items()} == before
            site.apply(patched(pipeline, aggregator__image="blockhouse/aggregator:0.1.2"))
            site.wait("a change of the spec restarts them", lambda: renewed(site, namespace, before), timeout=300)
    finally:
        site.version = OURS
        site.install()
    assert FORMER_VARIABLE not in {name for pod in replica_pods(site, namespace).values() for name in variables(pod)}


def renewed(site: Site, namespace: str, before: dict[str, str]) -> bool:
    found = replica_pods(site, namespace)
    return set(found) == set(before) and all(
        LATER_VARIABLE in variables(pod) and pod["metadata"]["uid"] != before[name] for name, pod in found.items()
    )
