"""Configuration files of ClickHouse on an API server: what restarts pods; a lost source takes nothing away."""

from __future__ import annotations

import base64

import pytest

from blockhouse_operator.desired.clickhouse_files import CONFIG, mounted_keys
from e2e.scenarios.resources import at_home, config_map, example, patched, secret
from e2e.scenarios.site import Site
from e2e.scenarios.state import pods

NAME = "files"
SECRET = f"{NAME}-clickhouse-files"
STORAGE = {"name": "storage.xml", "configMapKeyRef": {"name": "extra", "key": "storage.xml"}}
LOGINS = {"name": "logins.xml", "secretKeyRef": {"name": "logins", "key": "logins.xml"}}


def storage(number: int) -> dict[str, str]:
    return {"storage.xml": f"<clickhouse><max_open_files>{number}</max_open_files></clickhouse>"}


def logins(password: str) -> dict[str, str]:
    user = f"<bob><password>{password}</password></bob>"
    return {"logins.xml": f"<clickhouse><users>{user}</users></clickhouse>"}


def published(site: Site, namespace: str) -> dict[str, str]:
    data = site.cluster.get("secret", SECRET, "-n", namespace).get("data") or {}
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def uids(site: Site, namespace: str) -> set[str]:
    return {pod["metadata"]["uid"] for pod in pods(site.cluster, NAME, namespace)}


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
@pytest.mark.core
def test_files_reach_the_pods_and_outlive_their_sources(site: Site, namespace: str) -> None:
    pipeline = at_home(example(), site.surroundings, name=NAME, namespace=namespace)
    files = {"clickhouse__managed__configFiles": [STORAGE], "clickhouse__managed__userFiles": [LOGINS]}
    pipeline = patched(pipeline, shards=1, verifier={"enabled": False}, **files)
    with site.operator():
        site.apply(pipeline)
        site.wait_condition(NAME, namespace, "FilesPublished", "False", "SecretMissing")
        assert site.cluster.get("csi", "-n", namespace)["items"] == [], "it would begin without its files"

        site.apply(config_map("extra", namespace, storage(1)), secret("logins", namespace, **logins("one")))
        site.wait_settled(NAME, namespace)
        before = uids(site, namespace)
        site.apply(secret("logins", namespace, **logins("two")))
        site.wait("users are published", lambda: "two" in published(site, namespace)["user-00.xml"])
        site.cluster.kubectl("delete", "configmap/extra", "secret/logins", "-n", namespace)
        site.wait_condition(NAME, namespace, "FilesPublished", "False", "SecretMissing")
        assert "two" in published(site, namespace)["user-00.xml"]
        assert uids(site, namespace) == before

        site.apply(config_map("extra", namespace, {"storage.xml": "<clickhouse><tcp_port>1</tcp_port></clickhouse>"}))
        refused = site.wait_condition(NAME, namespace, "FilesPublished", "False", "InvalidFile")
        assert "tcp_port" in refused["message"]
        assert uids(site, namespace) == before


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
def test_another_content_replaces_pods_and_the_former_one_stays_as_long_as_one_mounts_it(
    site: Site, namespace: str
) -> None:
    pipeline = at_home(example(), site.surroundings, name=NAME, namespace=namespace)
    files = {"clickhouse__managed__configFiles": [STORAGE]}
    pipeline = patched(pipeline, shards=1, verifier={"enabled": False}, **files)

    def config() -> set[str]:
        return {key for key in published(site, namespace) if key.startswith(CONFIG)}

    def lacking() -> set[str]:
        """Keys that a pod mounts and the Secret does not have."""
        mounted = {key for pod in pods(site.cluster, NAME, namespace) for key in mounted_keys(pod, SECRET)}
        return mounted - config()

    with site.operator():
        site.apply(config_map("extra", namespace, storage(1)), pipeline)
        site.wait_settled(NAME, namespace)
        former, before = config(), uids(site, namespace)
        site.apply(config_map("extra", namespace, storage(2)))

        def replaced() -> bool:
            assert lacking() == set()
            return before.isdisjoint(uids(site, namespace))

        site.wait("every pod is another one", replaced, timeout=300)
        site.wait_settled(NAME, namespace)
        site.wait("the former file is gone", lambda: former.isdisjoint(config()))
        assert lacking() == set()
