"""A ClickHouse user never exists without its password: what is published, and what pods of earlier operators keep."""

from __future__ import annotations

from typing import Any
from xml.etree.ElementTree import Element, fromstring

import pytest

from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.resource import ClickHouseShardIngest, InvalidSpec, Resource
from blockhouse_operator.api.status import ClickHouseShardIngestStatus
from blockhouse_operator.desired import clickhouse, shard
from blockhouse_operator.desired.clickhouse import Passwords
from blockhouse_operator.reconcile.mounted import with_mounted_files
from tests.unit.operator.resources import pipeline

USERS = "spec.clickhouse.managed.users"
BOTH = [{"name": name, "passwordSecretRef": {"name": name}} for name in ("analyst", "newcomer")]
FORMER = """<yandex><users>
<default><password /></default><cluster><password from_env="CLICKHOUSE_CLUSTER_PASSWORD" /></cluster>
<analyst><password from_env="CLICKHOUSE_PASSWORD_ANALYST" /></analyst></users></yandex>"""


def published(passwords: dict[str, str], users: list[dict[str, Any]] = BOTH) -> dict[str, Element]:
    managed = pipeline((USERS, users)).spec.clickhouse.managed
    assert managed is not None
    root = fromstring(clickhouse.users(managed, Passwords({"cluster": "c"}, passwords)))
    return {account.tag: account for account in root.findall("users/*")}


@pytest.mark.parametrize("passwords", [{"analyst": "secret"}, {"analyst": "secret", "newcomer": ""}])
def test_a_user_without_a_password_is_not_published(passwords: dict[str, str]) -> None:
    assert set(published(passwords)) == {"default", "cluster", "analyst"}


def test_no_password_is_readable_or_from_the_environment() -> None:
    for name, account in published({"analyst": "very secret", "newcomer": "x"}).items():
        if name != "default":
            (password,) = [each for each in account if each.tag.startswith("password")]
            assert password.tag == "password_sha256_hex"
            assert len(password.text or "") == 64
            assert not password.attrib
    assert "very secret" not in repr(Passwords({"cluster": "c"}, {"analyst": "very secret"}))


def test_ipv4_networks_are_written_so_that_old_servers_do_not_take_them_for_all_of_ipv4() -> None:
    limited = [{**BOTH[0], "networks": ["10.0.0.0/8", "10.1.2.3", "fd00::/8"]}]
    account = published({"analyst": "x"}, limited)["analyst"]

    assert [ip.text for ip in account.findall("networks/ip")] == ["::ffff:10.0.0.0/104", "10.1.2.3", "fd00::/8"]


def test_what_is_no_network_is_refused() -> None:
    with pytest.raises(InvalidSpec, match=r"10\.0\.0\.0/99 is neither"):
        pipeline((USERS, [{**BOTH[0], "networks": ["10.0.0.0/99"]}]))


def shard_with(*changes: tuple[str, Any]) -> ClickHouseShardIngest:
    spec = resolve(pipeline(*changes), 0)
    return Resource("ClickHouseShardIngest", "events-0", "data", "u", 1, spec, ClickHouseShardIngestStatus())


def pod(source: str) -> dict[str, Any]:
    item = {"name": "x", "items": [{"key": "users.xml", "path": "users.xml"}]}
    return {"spec": {"volumes": [{"name": "v", "projected": {"sources": [{source: item}]}}]}}


def config_after(pods: dict[str, Any], *changes: tuple[str, Any]) -> dict[str, str]:
    mine = shard_with(*changes)
    live = {("ConfigMap", "events-0-config"): {"data": {"users.xml": FORMER, "old.yaml": "of it", "other.yaml": "x"}}}
    found = with_mounted_files(mine, ["old"], pods, shard.children(mine), live)
    data: dict[str, str] = found[0]["data"]
    return data


def test_pods_of_earlier_operators_are_never_given_a_user() -> None:
    data = config_after({"r": pod("configMap")}, (USERS, BOTH))

    assert data["users.xml"] == FORMER
    assert "newcomer" not in data["users.xml"]


def test_pods_of_earlier_operators_lose_a_user_that_is_removed() -> None:
    data = config_after({"r": pod("configMap")}, (USERS, []))

    assert [account.tag for account in fromstring(data["users.xml"]).findall("users/*")] == ["default", "cluster"]


def test_without_such_pods_no_configmap_has_users() -> None:
    assert "users.xml" not in config_after({"r": pod("secret")})


def test_a_replica_that_is_to_leave_keeps_its_file() -> None:
    data = config_after({})

    assert data["old.yaml"] == "of it"
    assert "other.yaml" not in data
