"""Another content of a Secret that pods read, on an API server: they restart once for it, where it is asked for."""

from __future__ import annotations

import pytest

from e2e.scenarios.resources import at_home, example, patched, secret
from e2e.scenarios.site import Site
from e2e.scenarios.state import pods

NAME = "changing"


def uids(site: Site, namespace: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods(site.cluster, NAME, namespace)}


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
def test_pods_restart_once_for_another_content(site: Site, namespace: str) -> None:
    pipeline = at_home(example(), site.surroundings, name=NAME, namespace=namespace)
    pipeline = patched(pipeline, shards=1)
    login = {"username": "loader", "secretRef": {"name": "ensemble", "key": "word"}}
    pipeline["spec"]["zookeeper"]["ensembles"][0]["auth"] = login

    def reported() -> dict[str, str]:
        found = site.cluster.get("ba", NAME, "-n", namespace)["status"]["secrets"]
        return {each["name"]: each["hash"] for each in found}

    with site.operator():
        site.apply(secret("ensemble", namespace, word="one"), pipeline)
        site.wait_settled(NAME, namespace)
        before, hashes = uids(site, namespace), reported()
        site.apply(patched(pipeline, rollout={"onSecretChange": "Restart"}))
        site.wait_settled(NAME, namespace)
        assert uids(site, namespace) == before, "turning it on restarts nothing"

        site.apply(secret("ensemble", namespace, word="two"))
        site.wait("every pod is another one", lambda: before.isdisjoint(uids(site, namespace)), timeout=300)
        site.wait_settled(NAME, namespace)
        after = uids(site, namespace)
        assert {name for name, found in reported().items() if found != hashes[name]} == {"ensemble"}

    with site.operator():
        site.wait_settled(NAME, namespace)
        assert uids(site, namespace) == after, "the same to an operator that comes later"
