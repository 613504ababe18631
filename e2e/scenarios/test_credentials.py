"""The pipeline's own Secrets are lost, and rotated, and a password of the user's is replaced: nothing restarts and no
aggregator answers 401."""

from __future__ import annotations

import base64
from xml.etree.ElementTree import fromstring

import pytest

from blockhouse.tokens import read_only
from blockhouse_operator.api import names
from blockhouse_operator.api.labels import ROTATE_CREDENTIALS
from blockhouse_operator.desired.parts_login import FILE, PartsLogin, parsed
from e2e.cluster import ClusterError
from e2e.scenarios.resources import at_home, example, patched, secret
from e2e.scenarios.site import Site
from e2e.scenarios.state import pods

NAME = "secrets"


def content(site: Site, name: str, namespace: str) -> dict[str, str]:
    try:
        data = site.cluster.get("secret", name, "-n", namespace)["data"]
    except ClusterError:
        return {}
    return {key: base64.b64decode(value).decode() for key, value in data.items()}


def check_accepted(before: dict[str, dict[str, str]], after: dict[str, dict[str, str]]) -> None:
    """Contents of the Secrets: the new ones are accepted beside the former ones, which are used."""
    internal, read, passwords = names.own_secrets(NAME)
    token, password = before[internal]["token"], before[passwords]["password"]
    assert after[internal]["former-token"] == token
    assert after[read] == {"token": read_only(token), "other-token": read_only(after[internal]["token"])}
    assert after[passwords]["password"] == password
    assert after[passwords]["password-b"] not in ("", password)


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
@pytest.mark.core
def test_a_lost_secret_comes_back_and_a_rotation_restarts_nothing(site: Site, namespace: str) -> None:
    internal, clickhouse = f"{NAME}-internal", f"{NAME}-clickhouse"
    own = names.own_secrets(NAME)

    def contents() -> dict[str, dict[str, str]]:
        return {name: content(site, name, namespace) for name in own}

    pipeline = patched(at_home(example(), site.surroundings, name=NAME, namespace=namespace), shards=1)
    with site.operator():
        site.apply(pipeline)
        site.wait_settled(NAME, namespace)
        before, uids = contents(), {p["metadata"]["uid"] for p in pods(site.cluster, NAME, namespace)}
        assert "password" not in before[internal]
        token = before[internal]["token"]
        assert before[names.read_secret(NAME)] == {"token": read_only(token)}

        site.cluster.kubectl("delete", "secret", *own, "-n", namespace)

        site.wait("they are back as they were", lambda: contents() == before, timeout=60)
        site.wait_settled(NAME, namespace)

        site.cluster.kubectl("annotate", "ba", NAME, f"{ROTATE_CREDENTIALS}=now", "-n", namespace)

        site.wait("the token is another one", lambda: contents()[internal].get("token") != token)
        site.wait("so is the one that only reads", lambda: "other-token" in contents()[names.read_secret(NAME)])
        check_accepted(before, contents())

        def accounts() -> set[str]:
            found = fromstring(content(site, clickhouse, namespace)["users.xml"]).findall("users/*")
            return {account.tag for account in found}

        site.wait("both users are accepted", lambda: {"cluster", "cluster-b"} <= accounts())
        servers = fromstring(content(site, clickhouse, namespace)["remote_servers.xml"])
        assert {user.text for user in servers.findall(".//user")} == {"cluster"}, "used until all know the new one"
        site.wait_settled(NAME, namespace)
        assert {p["metadata"]["uid"] for p in pods(site.cluster, NAME, namespace)} == uids


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
def test_a_new_password_between_replicas_is_accepted_beside_the_one_that_they_use(site: Site, namespace: str) -> None:
    """That they use it, and that the former one ends, takes as long as a kubelet may: see test_operator_interserver."""
    guarded = {"clickhouse__managed__interserverSecretRef": {"name": "between-replicas"}}
    pipeline = patched(at_home(example(), site.surroundings, name=NAME, namespace=namespace), shards=1, **guarded)

    def login() -> PartsLogin | None:
        return parsed(content(site, f"{NAME}-clickhouse", namespace).get(FILE, ""))

    with site.operator():
        site.apply(secret("between-replicas", namespace, password="the-first"), pipeline)
        site.wait_settled(NAME, namespace)
        uids = {p["metadata"]["uid"] for p in pods(site.cluster, NAME, namespace)}
        assert login() == PartsLogin("the-first")

        site.apply(secret("between-replicas", namespace, password="the-second"))

        site.wait("both are accepted", lambda: login() == PartsLogin("the-first", ("the-second",)))
        site.wait_settled(NAME, namespace)
        assert {p["metadata"]["uid"] for p in pods(site.cluster, NAME, namespace)} == uids
