"""Two replicas, started from the operator's own files, that fetch from each other only with the shard's credentials,
also while these are replaced."""

from __future__ import annotations

import urllib.error
import urllib.request
from base64 import b64encode
from collections.abc import Iterator
from itertools import count

import pytest

from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.decide.parts_login import replaced, rests
from blockhouse_operator.desired import clickhouse, parts_login
from blockhouse_operator.desired.parts_login import PartsLogin
from e2e.clickhouse_choice import CURRENT, OLDEST
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from e2e.stack.spec import StackSpec
from e2e.stack.zookeeper import ZooKeeperServer
from e2e.standin import REPLICAS_HOST
from tests.integration.pod_server import PodServer, replica_of, running
from tests.unit.operator.resources import pipeline

pytestmark = [pytest.mark.integration, pytest.mark.clickhouse]

OF_ENVIRONMENT, PASSWORD, NEXT = "of-the-environment", "between-replicas", "between-them-later"
VERSION = StackSpec().clickhouse
_rows = count(1)


class Guarded(PodServer):
    """A server with `interserverSecretRef`. Its pod has the password in its environment, too, as it was when that
    started: the file takes its place."""

    def prepare(self) -> list[str]:
        self.environment = {
            **PodServer.environment,
            clickhouse.REPLICA: self.name,
            clickhouse.INTERSERVER_PASSWORD: OF_ENVIRONMENT,
        }
        command = super().prepare()
        servers = ("spec.zookeeper.ensembles.0.servers", [f"127.0.0.1:{self._zookeeper_port}"])
        guarded = ("spec.clickhouse.managed.interserverSecretRef", {"name": "interserver"})
        self.write("config.xml", clickhouse.server(resolve(pipeline(servers, guarded), 1)))
        if not (self.folder / self.file).exists():
            self.admit(PartsLogin(PASSWORD))
        return command

    file = f"config.d/{parts_login.FILE}"

    def admit(self, login: PartsLogin) -> None:
        """Write the file, as the operator does and the kubelet brings it."""
        self.write(self.file, parts_login.written(login))

    def write(self, name: str, text: str) -> None:
        super().write(name, for_the_stand_in(text, self.name) if VERSION == CURRENT else text)

    @property
    def parts_address(self) -> str:
        return f"{REPLICAS_HOST}:{self.http_port}" if VERSION == CURRENT else f"127.0.0.1:{self.interserver_port}"


def for_the_stand_in(text: str, replica: str) -> str:
    """It serves replicas at an address, not at a port, and all of its servers have one UUID."""
    for ours, its in (("::", "127.0.0.1"), ("0.0.0.0", REPLICAS_HOST)):
        text = text.replace(f"<listen_host>{ours}</listen_host>", f"<listen_host>{its}</listen_host>")
    session = f"<sessions_path>/clickhouse/sessions/{replica}</sessions_path>"
    return text.replace("</zookeeper>", f"{session}</zookeeper>")


@pytest.fixture(scope="module")
def replicas(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[Guarded]]:
    folder, ports = tmp_path_factory.mktemp("guarded"), Ports()
    zookeeper = ZooKeeperServer("zookeeper", folder / "zookeeper", port=ports["zookeeper"], dies_with_parent=True)
    servers = [replica_of(Guarded, folder, ports, number, zookeeper.port) for number in (1, 2)]
    with running(ports, zookeeper, *servers):
        for replica in servers:
            engine = "ReplicatedMergeTree('/clickhouse/tables/{shard}/guarded', '{replica}')"
            replica.execute(f"CREATE TABLE default.guarded (a UInt64) ENGINE = {engine} ORDER BY a")
        yield servers


def replicate(*replicas: Guarded) -> bool:
    """Whether a row of each comes to all others."""
    rows = {next(_rows): replica for replica in replicas}
    for row, replica in rows.items():
        replica.execute("INSERT INTO default.guarded VALUES", [(row,)])  # type: ignore[arg-type]
    query = f"SELECT count() FROM default.guarded WHERE a >= {min(rows)}"
    return all(wait_until(lambda r=r: r.execute(query) == [(len(rows),)], timeout=60) for r in replicas)


def fetch(replica: Guarded, *login: str) -> str:
    """What a stranger is answered who asks for a part."""
    path = "endpoint=DataPartsExchange:/clickhouse/tables/1/guarded/replicas/replica-1&part=all_0_0_0&compress=false"
    request = urllib.request.Request(f"http://{replica.parts_address}/?{path}", method="POST", data=b"")
    if login:
        request.add_header("Authorization", f"Basic {b64encode(':'.join(login).encode()).decode()}")
    try:
        with urllib.request.urlopen(request, timeout=10) as answer:
            return f"{answer.status} {answer.read()!r}"
    except urllib.error.HTTPError as error:
        return f"{error.code} {error.read()!r}"


def admits(replica: Guarded, password: str) -> bool:
    """Whether a peer with this password would be let in."""
    return not fetch(replica, parts_login.USER, password).startswith("401")


def test_who_has_no_credentials_fetches_nothing(replicas: list[Guarded]) -> None:
    assert replicate(*replicas)
    right = fetch(replicas[0], "interserver", PASSWORD)
    for stranger in ((), ("interserver", OF_ENVIRONMENT), ("interserver", ""), ("other", PASSWORD)):
        assert fetch(replicas[0], *stranger).startswith("401"), stranger

    assert right.startswith("200"), right


rereads = pytest.mark.skipif(VERSION == OLDEST, reason="18.16 reads the password when it starts, and knows one")


def admit(replica: Guarded, login: PartsLogin, *others: str) -> None:
    """Write the file; returns when the server has read it: it refuses `others`."""
    replica.admit(login)
    right = dict.fromkeys(others, False) | dict.fromkeys((login.used, *login.accepted), True)
    assert wait_until(lambda: {word: admits(replica, word) for word in right} == right, timeout=60), replica.name


@rereads
def test_replicas_continue_to_fetch_while_the_password_is_replaced_and_none_restarts(replicas: list[Guarded]) -> None:
    """The kubelet brings each step to one replica first, and to the other one while that is at it."""
    processes = [replica.pid for replica in replicas]
    for replica in replicas:
        admit(replica, PartsLogin(PASSWORD), NEXT)
    login = PartsLogin(PASSWORD)
    while not rests(login, NEXT):
        login = replaced(login, NEXT, waited=1e9, everywhere=True)
        for replica in replicas:
            admit(replica, login, PASSWORD, NEXT)
            assert replicate(*replicas), (replica.name, login)

    assert not any(admits(replica, PASSWORD) for replica in replicas)
    assert [replica.pid for replica in replicas] == processes


@rereads
def test_a_password_that_a_peer_does_not_accept_yet_keeps_its_parts_from_a_replica(replicas: list[Guarded]) -> None:
    first, second = replicas
    admit(first, PartsLogin(NEXT, (PASSWORD,)))
    admit(second, PartsLogin(PASSWORD), NEXT)
    second.execute("INSERT INTO default.guarded VALUES", [(next(_rows),)])  # type: ignore[arg-type]

    def refused() -> bool:
        found = first.execute("SELECT last_exception FROM system.replication_queue WHERE table = 'guarded'")
        return any("401" in text or "uthentication" in text for (text,) in found)

    assert wait_until(refused, timeout=60)
    admit(second, PartsLogin(PASSWORD, (NEXT,)))
    assert replicate(*replicas), "it is tried again"


@pytest.mark.skipif(VERSION != OLDEST, reason="servers since 22.1 read the file again, see above")
def test_a_server_of_18_16_takes_no_notice_of_further_passwords_and_reads_another_one_when_it_starts(
    replicas: list[Guarded],
) -> None:
    for replica in replicas:
        replica.admit(PartsLogin(PASSWORD, (NEXT, "and-another-one")))
        replica.restart()
    assert replicate(*replicas)
    assert [admits(replicas[0], word) for word in (PASSWORD, NEXT)] == [True, False]

    for replica in replicas:
        replica.admit(PartsLogin(NEXT, (PASSWORD,)))
    for replica in replicas:
        replica.restart()
    assert replicate(*replicas)
    assert [admits(replicas[0], word) for word in (PASSWORD, NEXT)] == [False, True]
