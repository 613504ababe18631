"""The pipeline's own Secret is lost, and rotated: nothing restarts and no aggregator answers 401."""

from __future__ import annotations

import base64
from xml.etree.ElementTree import fromstring

import pytest

from blockhouse_operator.api.labels import ROTATE_CREDENTIALS
from e2e.cluster import ClusterError
from e2e.scenarios.resources import at_home, example, patched
from e2e.scenarios.site import Site
from e2e.scenarios.state import pods

NAME = "secrets"


def content(site: Site, secret: str, namespace: str) -> dict[str, str]:
    try:
        data = site.cluster.get("secret", secret, "-n", namespace)["data"]
    except ClusterError:
        return {}
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
@pytest.mark.core
def test_a_lost_secret_comes_back_and_a_rotation_restarts_nothing(site: Site, namespace: str) -> None:
    internal, clickhouse = f"{NAME}-internal", f"{NAME}-clickhouse"
    pipeline = patched(at_home(example(), site.surroundings, name=NAME, namespace=namespace), shards=1)
    with site.operator():
        site.apply(pipeline)
        site.wait_settled(NAME, namespace)
        before, uids = (
            content(site, internal, namespace),
            {p["metadata"]["uid"] for p in pods(site.cluster, NAME, namespace)},
        )

        site.cluster.kubectl("delete", "secret", internal, "-n", namespace)

        site.wait("it is back as it was", lambda: content(site, internal, namespace) == before)
        site.wait_settled(NAME, namespace)

        site.cluster.kubectl("annotate", "ba", NAME, f"{ROTATE_CREDENTIALS}=now", "-n", namespace)

        site.wait(
            "the token is another one", lambda: content(site, internal, namespace).get("token") != before["token"]
        )
        after = content(site, internal, namespace)
        assert after["former-token"] == before["token"]
        assert after["password"] == before["password"]
        assert after["password-b"] not in ("", before["password"])

        def accounts() -> set[str]:
            found = fromstring(content(site, clickhouse, namespace)["users.xml"]).findall("users/*")
            return {account.tag for account in found}

        site.wait("both users are accepted", lambda: {"cluster", "cluster-b"} <= accounts())
        servers = fromstring(content(site, clickhouse, namespace)["remote_servers.xml"])
        assert {user.text for user in servers.findall(".//user")} == {"cluster"}, "used until all know the new one"
        site.wait_settled(NAME, namespace)
        assert {p["metadata"]["uid"] for p in pods(site.cluster, NAME, namespace)} == uids
