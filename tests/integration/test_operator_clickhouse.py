"""A real server, started from the very files that the operator writes for a pod."""

from __future__ import annotations

import re
import socket
import subprocess
from collections.abc import Callable, Iterator
from typing import ClassVar

import psutil
import pytest
from clickhouse_driver import Client
from clickhouse_driver.errors import ErrorCodes, ServerException

from blockhouse_operator.api.resolve import all_replicas, resolve
from blockhouse_operator.desired import clickhouse, pod
from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from e2e.stack.spec import StackSpec
from e2e.stack.zookeeper import ZooKeeperServer
from tests.unit.operator.resources import pipeline

pytestmark = pytest.mark.integration
REPLICA = "events-1-dc-a-0"
WRONG_LOGIN = {193, 194, 195, 516}
"""Password wrong, password missing, address not allowed; newer servers say no more than 516."""
CLUSTER, ANALYST = "of-the-cluster", "of-the-analyst"


class PodServer(ClickHouseServer):
    """The container `clickhouse` of a pod: our files, with this machine's folder and ports in place of the pod's."""

    environment: ClassVar[dict[str, str]] = {
        **ClickHouseServer.environment,
        clickhouse.REPLICA: REPLICA,
        clickhouse.HOST: "127.0.0.1",
        clickhouse.CLUSTER_PASSWORD: CLUSTER,
        clickhouse.password_variable("analyst"): ANALYST,
    }
    shards = 2

    def prepare(self) -> list[str]:
        command = super().prepare()
        servers = ("spec.zookeeper.ensembles.0.servers", [f"127.0.0.1:{self._zookeeper_port}"])
        spec = resolve(pipeline(servers), 1)
        assert spec.clickhouse.managed is not None
        (self.folder / "config.d").mkdir(exist_ok=True)
        self.write("config.xml", clickhouse.server(spec))
        self.write("users.xml", clickhouse.users(spec.clickhouse.managed))
        self.list_shards(2)
        return command

    def list_shards(self, shards: int) -> None:
        """Write `remote_servers` anew, as the operator does when shards are added."""
        here = [(f"spec.zones.{zone}.hostTemplate", "127.0.0.1") for zone in (0, 1)]
        wanted = all_replicas(pipeline(("spec.shards", shards), *here))
        self.write("config.d/remote_servers.xml", clickhouse.remote_servers("events", wanted))

    def write(self, name: str, text: str) -> None:
        ports = {"8123": self.http_port, "9000": self.port, "9009": self._interserver_port}
        text = re.sub(r"(?<=_port>)\d+", lambda found: str(ports[found[0]]), text)
        (self.folder / name).write_text(text.replace(clickhouse.DATA, str(self.folder)))


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
    try:
        zookeeper.start()
        pod_server.start()
        yield pod_server
    finally:
        pod_server.kill()
        zookeeper.kill()
        ports.release()


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


def test_a_read_only_user_changes_nothing(login: Login) -> None:
    assert refused(login("analyst", ANALYST), "CREATE DATABASE mine") == ErrorCodes.READONLY


def test_the_user_without_password_exists_for_the_pod_itself_only(server: PodServer) -> None:
    addresses = [a.address for found in psutil.net_if_addrs().values() for a in found if a.family == socket.AF_INET]
    outside = [address for address in addresses if not address.startswith("127.")]
    if not outside:
        pytest.skip("this machine has no address but loopback")

    with Client(outside[0], server.port) as client:
        assert refused(client) in WRONG_LOGIN


def test_new_shards_are_known_without_a_restart(server: PodServer) -> None:
    def shards() -> int:
        ((count,),) = server.execute("SELECT uniqExact(shard_num) FROM system.clusters WHERE cluster = 'events'")
        return int(count)

    before = shards()
    server.list_shards(3)

    assert before == 2
    assert wait_until(lambda: shards() == 3, timeout=60)


def test_clickhouse_waits_while_the_aggregator_listens_and_no_longer() -> None:
    def seconds_waited(port: int) -> int:
        script = pod.wait_until_closed(port, most=1)
        shell = ["/bin/sh", "-c", f"{script}; echo $n"]
        return int(subprocess.run(shell, check=True, timeout=30, capture_output=True, text=True).stdout)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        while_listening = seconds_waited(port)

    assert while_listening == 1
    assert seconds_waited(port) == 0
