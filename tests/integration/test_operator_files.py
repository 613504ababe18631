"""Settings, profiles, quotas and files that a pipeline gives its servers, read by a real one."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from clickhouse_driver import Client
from clickhouse_driver.errors import ErrorCodes, ServerException

from blockhouse_operator.desired import clickhouse
from blockhouse_operator.desired.clickhouse_files import USER_SLOTS, config_path, usable_config, usable_users
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from e2e.stack.zookeeper import ZooKeeperServer
from tests.integration.pod_server import CLUSTER, PodServer, replica_of, running, skip_on_the_stand_in, user
from tests.unit.operator.resources import pipeline

pytestmark = [pytest.mark.integration, pytest.mark.clickhouse]
MANAGED: dict[str, Any] = {
    "users": [
        user("anna", profile="analysts", quotaName="fair"),
        user("berta", profile="analysts", quotaName="fair"),
    ],
    "profiles": [{"name": "analysts", "settings": {"max_memory_usage": "23456789"}}],
    "quotas": [{"name": "fair", "interval": "1h", "queries": 4}],
    "settings": {"merge_tree/max_suspicious_broken_parts": "21", "max_concurrent_queries": "77"},
}
SPEC = pipeline(*((f"spec.clickhouse.managed.{name}", found) for name, found in MANAGED.items())).spec.clickhouse
FILE = "<clickhouse><merge_tree><max_delay_to_insert>7</max_delay_to_insert></merge_tree></clickhouse>"


def bob(password: str) -> str:
    account = f"<password>{password}</password><networks><ip>::/0</ip></networks>"
    account += "<profile>analysts</profile><quota>default</quota>"
    return usable_users(f"<yandex><users><bob>{account}</bob></users></yandex>", SPEC)


class ConfiguredServer(PodServer):
    """With what is in MANAGED, and a file of each sort."""

    def prepare(self) -> list[str]:
        command = super().prepare()
        assert SPEC.managed is not None
        self.configure(*((f"spec.clickhouse.managed.{name}", found) for name, found in MANAGED.items()))
        passwords = clickhouse.Passwords({clickhouse.CLUSTER_USER: CLUSTER}, {"anna": "a", "berta": "b"})
        self.write("users.xml", clickhouse.users(SPEC.managed, passwords))
        (self.folder / "users.d").mkdir(exist_ok=True)
        self.write(config_path("delay.xml"), usable_config(FILE, SPEC))
        self.write(f"users.d/{USER_SLOTS[0]}", bob("first"))
        return command


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ConfiguredServer]:
    folder, ports = tmp_path_factory.mktemp("configured"), Ports()
    zookeeper = ZooKeeperServer("zookeeper", folder / "zookeeper", port=ports["zookeeper"], dies_with_parent=True)
    found = replica_of(ConfiguredServer, folder, ports, 1, zookeeper.port)
    with running(ports, zookeeper, found):
        yield found


def value(client: Client, setting: str) -> str:
    ((found,),) = client.execute(f"SELECT value FROM system.settings WHERE name = '{setting}'")
    return str(found)


def refusal(server: PodServer, user: str, password: str) -> int:
    """The code with which a query of the user is refused; 0 when it is answered."""
    try:
        with Client(server.host, server.port, user=user, password=password) as client:
            client.execute("SELECT 1")
    except ServerException as error:
        return int(error.code)
    return 0


def test_settings_of_the_spec_and_of_a_file_meet_in_one_section(server: PodServer) -> None:
    names = "('max_suspicious_broken_parts', 'max_delay_to_insert')"
    found = dict(server.execute(f"SELECT name, value FROM system.merge_tree_settings WHERE name IN {names}"))
    assert found == {"max_suspicious_broken_parts": "21", "max_delay_to_insert": "7"}


def test_users_have_their_profile_and_each_its_own_count_of_a_shared_quota(server: PodServer) -> None:
    skip_on_the_stand_in("counts no quotas")
    with Client(server.host, server.port, user="anna", password="a") as anna:
        assert value(anna, "max_memory_usage") == "23456789"
    assert wait_until(lambda: refusal(server, "anna", "a") == ErrorCodes.QUOTA_EXPIRED, timeout=60)
    assert refusal(server, "berta", "b") == 0


def test_another_file_of_users_counts_without_a_restart(server: PodServer) -> None:
    skip_on_the_stand_in("reads users once, when it starts")
    with Client(server.host, server.port, user="bob", password="first") as client:
        assert value(client, "max_memory_usage") == "23456789"
    server.write(f"users.d/{USER_SLOTS[0]}", bob("second"))
    assert wait_until(lambda: refusal(server, "bob", "second") == 0, timeout=60)
    assert refusal(server, "bob", "first") != 0
