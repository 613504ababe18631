"""ClickHouse's users: published with their passwords, never without, and without a restart."""

from __future__ import annotations

import base64
import hashlib
from xml.etree.ElementTree import fromstring

import pytest

from e2e.cluster import ClusterError
from e2e.scenarios.resources import at_home, example, patched, secret
from e2e.scenarios.site import Site
from e2e.scenarios.state import children, pods

NAME = "users"


def published(site: Site, namespace: str) -> dict[str, str]:
    """Users of the Secret that the servers mount, with the hashes of their passwords."""
    try:
        data = site.cluster.get("secret", f"{NAME}-clickhouse", "-n", namespace)["data"]
    except ClusterError:
        return {}
    accounts = fromstring(base64.b64decode(data["users.xml"]).decode()).findall("users/*")
    return {account.tag: account.findtext("password_sha256_hex", "") for account in accounts}


def hashed(password: str) -> str:
    return hashlib.sha256(password.encode()).hexdigest()


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
@pytest.mark.core
def test_a_user_is_there_when_its_secret_is_and_no_pod_is_restarted_for_it(site: Site, namespace: str) -> None:
    pipeline = at_home(example(), site.surroundings, name=NAME, namespace=namespace)
    pipeline = patched(pipeline, shards=1, verifier={"enabled": False})
    users = pipeline["spec"]["clickhouse"]["managed"]["users"]
    newcomer = {"name": "newcomer", "passwordSecretRef": {"name": "not-there-yet"}}
    with site.operator():
        site.apply(pipeline)
        site.wait_settled(NAME, namespace)
        before = {pod["metadata"]["uid"] for pod in pods(site.cluster, NAME, namespace)}
        assert published(site, namespace)["analyst"] == hashed("not so secret")

        pipeline = patched(pipeline, clickhouse__managed__users=[*users, newcomer])
        site.apply(pipeline)
        missing = site.wait_condition(NAME, namespace, "UsersPublished", "False", "SecretMissing")
        assert "newcomer" in missing["message"]
        assert "not-there-yet" in missing["message"]
        site.wait_settled(NAME, namespace)
        assert set(published(site, namespace)) == {"default", "cluster", "analyst"}

        site.apply(secret("not-there-yet", namespace, password="first"))
        site.wait("it is published", lambda: published(site, namespace).get("newcomer") == hashed("first"))
        site.wait_condition(NAME, namespace, "UsersPublished", "True")
        site.apply(secret("not-there-yet", namespace, password="second"))
        site.wait("its password changes", lambda: published(site, namespace).get("newcomer") == hashed("second"))
        site.cluster.kubectl("delete", "secret", "not-there-yet", "-n", namespace)
        site.wait("it is gone", lambda: "newcomer" not in published(site, namespace))

        site.wait_settled(NAME, namespace)
        assert {pod["metadata"]["uid"] for pod in pods(site.cluster, NAME, namespace)} == before
        configs = [c["data"] for c in children(site.cluster, NAME, namespace) if c["kind"] == "ConfigMap"]
        assert not [data for data in configs if "users.xml" in data]
