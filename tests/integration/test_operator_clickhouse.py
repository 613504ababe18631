"""A real server, started from the very files that the operator writes for a pod."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator

import psutil
import pytest
from clickhouse_driver import Client
from clickhouse_driver.errors import ErrorCodes, ServerException

from blockhouse_operator.decide.credentials import OVERLAP_SECONDS, rotated
from blockhouse_operator.desired import clickhouse
from blockhouse_operator.desired.clickhouse import Passwords
from blockhouse_operator.desired.credentials import Credentials
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from e2e.stack.spec import StackSpec
from e2e.stack.zookeeper import ZooKeeperServer
from tests.integration.pod_server import (
    ANALYST,
    CLUSTER,
    REPLICA,
    USERS,
    PodServer,
    running,
    skip_on_the_stand_in,
    user,
)
from tests.unit.operator.resources import pipeline

pytestmark = [pytest.mark.integration, pytest.mark.clickhouse]
WRONG_LOGIN = {193, 194, 195, 516}
"""Password wrong, password missing, address not allowed; newer servers answer only 516."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PodServer]:
    folder, ports = tmp_path_factory.mktemp("pod"), Ports()
    zookeeper = ZooKeeperServer("zookeeper", folder / "zookeeper", port=ports["zookeeper"], dies_with_parent=True)
    own = {purpose: ports[purpose] for purpose in ("native", "http", "interserver")}
    pod_server = PodServer(
        "clickhouse",
        folder / "clickhouse",
        spec=StackSpec(),
        id=(1, 1),
        ports=own,
        cluster={(1, 1): own["native"]},
        zookeeper_port=zookeeper.port,
        dies_with_parent=True,
    )
    with running(ports, zookeeper, pod_server):
        yield pod_server


Login = Callable[[str, str], Client]


@pytest.fixture
def login(server: PodServer) -> Iterator[Login]:
    clients: list[Client] = []

    def connect(user: str, password: str) -> Client:
        clients.append(Client(server.host, server.port, user=user, password=password))
        return clients[-1]

    yield connect
    for client in clients:
        client.disconnect()


@pytest.fixture
def rereads() -> None:
    skip_on_the_stand_in("reads its files once, when it starts")


def refused(client: Client, statement: str = "SELECT 1") -> int:
    with pytest.raises(ServerException) as caught:
        client.execute(statement)
    return int(caught.value.code)


def test_the_replica_knows_who_it_is(server: PodServer) -> None:
    macros = dict(server.execute("SELECT macro, substitution FROM system.macros"))

    assert macros == {"cluster": "events", "shard": "1", "replica": REPLICA}


def test_a_replica_that_fell_silent_is_not_waited_for_half_an_hour(server: PodServer) -> None:
    settings = "SELECT name, value FROM system.settings WHERE name IN ('http_receive_timeout', 'http_send_timeout')"

    assert dict(server.execute(settings)) == {"http_receive_timeout": "30", "http_send_timeout": "30"}


def test_the_ddl_of_the_example_makes_a_replicated_table_that_takes_rows(server: PodServer) -> None:
    ddl = pipeline().spec.tables[0].ddl
    assert ddl is not None
    server.execute("CREATE DATABASE IF NOT EXISTS db")

    server.execute(ddl)
    server.execute("INSERT INTO db.clicks (user, url) VALUES", [(7, "/")])  # type: ignore[arg-type]

    assert server.execute("SELECT user, url FROM db.clicks") == [(7, "/")]
    ((path, name, readonly),) = server.execute("SELECT zookeeper_path, replica_name, is_readonly FROM system.replicas")
    assert (path, name, readonly) == ("/clickhouse/tables/1/db.clicks", REPLICA, 0)


def test_users_have_the_passwords_of_their_secrets(login: Login) -> None:
    assert login(clickhouse.CLUSTER_USER, CLUSTER).execute("SELECT 1") == [(1,)]
    assert login("analyst", ANALYST).execute("SELECT 1") == [(1,)]
    assert refused(login("analyst", CLUSTER)) in WRONG_LOGIN
    assert refused(login(clickhouse.CLUSTER_USER, "")) in WRONG_LOGIN


def accepted(client: Callable[[], Client], statement: str = "SELECT 1") -> bool:
    try:
        client().execute(statement)
    except ServerException:
        return False
    return True


@pytest.mark.usefixtures("rereads")
def test_a_user_is_on_a_running_server_only_with_its_password(server: PodServer, login: Login) -> None:
    """Without the Secret there is no user; a changed Secret changes the password; a removed user is gone."""
    both = [*USERS, user("newcomer")]
    server.publish(both, {"analyst": "changed"})
    assert wait_until(lambda: accepted(lambda: login("analyst", "changed")), timeout=60)
    assert refused(login("analyst", ANALYST)) in WRONG_LOGIN
    for guess in ("", "newcomer", ANALYST):
        assert refused(login("newcomer", guess)) in {*WRONG_LOGIN, ErrorCodes.UNKNOWN_USER}

    server.publish(both, {"analyst": ANALYST, "newcomer": "its own"})
    assert wait_until(lambda: accepted(lambda: login("newcomer", "its own")), timeout=60)
    assert refused(login("newcomer", "")) in WRONG_LOGIN

    server.publish(USERS, {"analyst": ANALYST})
    assert wait_until(lambda: not accepted(lambda: login("newcomer", "its own")), timeout=60)
    assert login("analyst", ANALYST).execute("SELECT 1") == [(1,)]


@pytest.mark.usefixtures("rereads")
def test_a_user_has_the_networks_databases_settings_and_quota_of_the_spec(server: PodServer, login: Login) -> None:
    limited = user("limited", databases=["db"], settings={"max_memory_usage": "12345678"}, quota={"queries": 4})
    elsewhere = user("elsewhere", networks=["10.11.12.0/24", "10.0.0.1", "fd00::/8"])
    nearby = user("nearby", networks=["10.11.12.0/24", "127.0.0.0/8"])
    passwords = {"analyst": ANALYST, "limited": "l", "elsewhere": "e", "nearby": "n"}
    server.publish([*USERS, limited, elsewhere, nearby], passwords)
    client = login("limited", "l")
    setting = "SELECT value FROM system.settings WHERE name = 'max_memory_usage'"
    assert wait_until(lambda: accepted(lambda: login("limited", "l")), timeout=60)

    assert refused(login("elsewhere", "e")) in WRONG_LOGIN
    assert login("nearby", "n").execute("SELECT 1") == [(1,)]
    assert refused(client, "SELECT count() FROM default.nothing") != ErrorCodes.UNKNOWN_TABLE
    assert client.execute(setting) == [("12345678",)]
    assert refused(client, "CREATE DATABASE mine") in {ErrorCodes.READONLY, ErrorCodes.QUOTA_EXPIRED}
    while accepted(lambda: login("limited", "l")):
        pass
    assert refused(login("limited", "l")) == ErrorCodes.QUOTA_EXPIRED

    server.publish(USERS, {"analyst": ANALYST})


def test_replicas_query_each_other_with_the_password_of_the_file(server: PodServer) -> None:
    """The server asks itself by its address in `remote_servers`, as it would ask another replica."""
    found = server.execute("SELECT user FROM system.clusters WHERE cluster = 'events'")
    assert {name for (name,) in found} == {clickhouse.CLUSTER_USER}
    remote = f"remote('127.0.0.1:{server.port}', system, one, '{clickhouse.CLUSTER_USER}', '{CLUSTER}')"
    assert server.execute(f"SELECT count() FROM {remote}") == [(1,)]


@pytest.mark.usefixtures("rereads")
def test_the_password_between_replicas_is_replaced_by_a_second_user(server: PodServer, login: Login) -> None:
    """At no moment does a replica use what the others do not accept, although each reads its files at another one."""
    managed = pipeline(("spec.clickhouse.managed.users", USERS)).spec.clickhouse.managed
    assert managed is not None
    state, at = Credentials("t", (CLUSTER, "")), 0.0
    for _ in range(3):
        before = next(iter(state.of_cluster.items()))
        state = rotated(state, "now", at, ("new token", "new password"), waited=at - state.since)
        at += OVERLAP_SECONDS
        server.write("users.xml", clickhouse.users(managed, Passwords(state.of_cluster, {"analyst": ANALYST})))
        used = next(iter(state.of_cluster.items()))
        assert wait_until(lambda used=used: accepted(lambda: login(*used)), timeout=60)  # type: ignore[misc]
        if state.step:
            assert login(*before).execute("SELECT 1") == [(1,)]

    assert wait_until(lambda: not accepted(lambda: login(clickhouse.CLUSTER_USER, CLUSTER)), timeout=60)
    server.publish(USERS, {"analyst": ANALYST})
    assert wait_until(lambda: accepted(lambda: login(clickhouse.CLUSTER_USER, CLUSTER)), timeout=60)


def test_a_read_only_user_changes_nothing(login: Login) -> None:
    assert refused(login("analyst", ANALYST), "CREATE DATABASE mine") == ErrorCodes.READONLY


def test_the_user_without_password_exists_for_the_pod_itself_only(server: PodServer) -> None:
    addresses = [a.address for found in psutil.net_if_addrs().values() for a in found if a.family == socket.AF_INET]
    outside = [address for address in addresses if not address.startswith("127.")]
    if not outside:
        pytest.skip("this machine has no address but loopback")
    skip_on_the_stand_in("listens on one address")

    with Client(outside[0], server.port) as client:
        assert refused(client) in WRONG_LOGIN


@pytest.mark.usefixtures("rereads")
def test_new_shards_are_known_without_a_restart(server: PodServer) -> None:
    def shards() -> int:
        ((count,),) = server.execute("SELECT uniqExact(shard_num) FROM system.clusters WHERE cluster = 'events'")
        return int(count)

    before = shards()
    server.list_shards(3)

    assert before == 2
    assert wait_until(lambda: shards() == 3, timeout=60)


@pytest.mark.usefixtures("rereads")
def test_a_server_lists_its_own_shard_or_nothing_and_reads_that_again_without_a_restart(server: PodServer) -> None:
    def listed() -> list[tuple[int, str]]:
        found = "SELECT shard_num, user FROM system.clusters WHERE cluster = 'events' ORDER BY replica_num"
        return [(int(shard), user) for shard, user in server.execute(found)]

    server.list_own("Shard")
    assert wait_until(lambda: listed() == [(1, clickhouse.CLUSTER_USER)] * 4, timeout=60)
    over_the_network = "SELECT count() FROM cluster('events', system, one) SETTINGS prefer_localhost_replica = 0"
    assert server.execute(over_the_network) == [(1,)]

    server.list_own("None")
    assert wait_until(lambda: listed() == [], timeout=60)

    server.list_own("Full")
    assert wait_until(lambda: {shard for shard, _ in listed()} == {1, 2}, timeout=60)
