"""Folders and files that a process needs and loses, for good or because the disk is full: a person sees which one and
why, the other aggregators continue, and everything resumes once it is put right.
"""

from __future__ import annotations

import contextlib
import os
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import pytest

from blockhouse.contract.aggregator import Phase
from e2e.chaos.network import SmallDisk
from e2e.cluster.pki import Authority
from e2e.pipeline import AggregatorProcess
from e2e.stack import Stack, StackSpec
from tests.integration.clickhouse_proxy import Proxy
from tests.integration.kafka_authority import authority_of_brokers
from tests.integration.runtime_pipeline import Loading, eventually, loading, neighbour_flows
from tests.integration.test_bug_reports import STREAM
from tests.integration.test_clickhouse_tls import certificate

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(400)]

USER, PASSWORD = "aggregator", "not-secret"
STARTS_AGAIN = {"spark": {"lease": "3s"}}
"""What a lease needs is needed again within seconds."""
BALLAST = "ballast"


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return authority_of_brokers(tmp_path_factory.mktemp("authority"))


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory, authority: Authority) -> Iterator[Stack]:
    """Two replicas behind one Kafka cluster with logins over TLS."""
    spec = StackSpec(kafka_clusters=1, replicas=2, kafka_scram={USER: PASSWORD}, kafka_tls=str(authority.folder))
    with Stack(tmp_path_factory.mktemp("directories"), spec) as stack:
        yield stack


class Elsewhere(AggregatorProcess):
    """Works in a folder that is not the one of its log."""

    def prepare(self) -> list[str]:
        self.home.mkdir(exist_ok=True)
        return ["env", "--chdir", str(self.home), *super().prepare()]

    @property
    def home(self) -> Path:
        return self.folder / "home"


def test_an_aggregator_without_its_working_directory_continues(servers: Stack, tmp_path: Path) -> None:
    def place(found: Loading) -> None:
        (former,) = found.aggregators
        found.pipeline.aggregators[former.replica] = Elsewhere(former.name, former.folder, former.config)

    with loading(servers, tmp_path, "homeless", aggregators=1, settings=STARTS_AGAIN, before=place) as found:
        (aggregator,) = found.aggregators
        assert isinstance(aggregator, Elsewhere)
        table = found.feed.table("homeless")
        found.feed.send(table, 3)
        found.settle(table)
        aggregator.home.rmdir()
        assert os.readlink(f"/proc/{aggregator.pid}/cwd").endswith("(deleted)")
        aggregator.kill_member("worker")  # the next ones begin without it
        found.feed.send(table, 3)
        found.settle(table)
        found.feed.raw(b"\x0a\xff", found.feed.encode(table, [{"id": 1}])[1], to=STREAM)
        neighbour_flows(found, table)
        found.settle(table)
        assert aggregator.alive
        assert "Traceback" not in aggregator.log.read_text(errors="replace")


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of 4 MB."""
    if os.geteuid() != 0:
        pytest.skip("mounts a file system")
    folder = tmp_path / "scratch"
    disk = SmallDisk(folder, 4 << 20)
    disk.mount()
    try:
        yield folder
    finally:
        disk.unmount()


def full(folder: Path) -> bool:
    """Leave no room, also none that was taken for a moment when it was filled before; always true."""
    with (folder / BALLAST).open("ab", buffering=0) as file, contextlib.suppress(OSError):
        while True:
            file.write(bytes(4096))
    return True


def test_an_aggregator_whose_scratch_disk_is_full_gives_its_streams_to_others_and_takes_none_until_it_has_room(
    servers: Stack, tmp_path: Path, small_disk: Path
) -> None:
    def place(found: Loading) -> None:
        conf = {"spark.local.dir": str(small_disk)}
        first(found).config = {**first(found).config, "spark": {"lease": "3s", "conf": conf}}

    with loading(servers, tmp_path, "full", settings=STARTS_AGAIN, before=place) as found:
        table, poor = settled(found, "full_scratch"), first(found)
        found.wait("a lease to fail", lambda: full(small_disk) and bool(poor.logged("lease.failed")))
        neighbour_flows(found, table, to=owned(found, second(found)))
        found.feed.send(table, 3)
        found.wait("the aggregator without room to end", lambda: full(small_disk) and not poor.alive)
        assert poor.exit_code == 70
        assert "No space left on device" in poor.logged("spark.broken")[0]["error"]
        found.wait("the other one to have all streams", lambda: has_all(found, second(found)))
        neighbour_flows(found, table)
        taken_over = len(poor.logged("stream.taken_over"))
        poor.start(wait=False)
        found.wait("the aggregator to end again", lambda: not poor.alive)
        assert poor.exit_code == 70
        assert len(poor.logged("stream.taken_over")) == taken_over
        neighbour_flows(found, table)
        (small_disk / BALLAST).unlink()
        found.heal()
        found.feed.send(table, 3)
        found.wait("each its share of the streams", found.balanced)
        found.settle(table)


def first(found: Loading) -> AggregatorProcess:
    return found.aggregators[0]


def second(found: Loading) -> AggregatorProcess:
    return found.aggregators[1]


def has_all(found: Loading, aggregator: AggregatorProcess) -> bool:
    return len([s for s in aggregator.streams() if s.state is Phase.CONSUME]) == len(found.feed.streams)


def owned(found: Loading, aggregator: AggregatorProcess) -> tuple[str, int]:
    """A stream of the aggregator's."""
    return next((c, p) for c, p in found.feed.streams if aggregator.stream(found.stream(c, p)) is not None)


def settled(found: Loading, name: str) -> str:
    """A table that both aggregators load, each a stream of its own."""
    table = found.feed.table(name)
    found.feed.send(table, 3)
    found.wait("each its share of the streams", found.balanced)
    found.settle(table)
    return table


@pytest.fixture(scope="module")
def over_tls(servers: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Proxy, Path]]:
    """The first replica with TLS before it, and its certificate."""
    trusted, key = certificate(tmp_path_factory.mktemp("tls"), "server")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(trusted, key)
    with Proxy(servers.clickhouse[1, 1].port, tls=context) as proxy:
        yield proxy, trusted


def vanish(file: Path) -> None:
    file.unlink()


def become_a_folder(file: Path) -> None:
    """What not even root can read as a file."""
    file.unlink()
    file.mkdir()


@dataclass(frozen=True)
class Guarded:
    """The files that one aggregator needs, and what is in them."""

    proxy: Proxy
    texts: Mapping[Path, str]

    @classmethod
    def made(cls, authority: Authority, proxy: Proxy, trusted: Path, folder: Path) -> Guarded:
        certificate, key = authority.issue("client", "/CN=aggregator")
        texts = {
            "kafka-password": PASSWORD,
            "kafka-ca": authority.certificate.read_text(),
            "kafka-certificate": certificate.read_text(),
            "kafka-key": key.read_text(),
            "clickhouse-password": "",
            "clickhouse-ca": trusted.read_text(),
        }
        found = cls(proxy, {folder / name: text for name, text in texts.items()})
        for file in found.texts:
            found.put_back(file)
        return found

    def put_back(self, file: Path) -> None:
        if file.is_dir():
            file.rmdir()
        file.write_text(self.texts[file])

    def configure(self, found: Loading) -> None:
        kafka_password, kafka_ca, kafka_certificate, kafka_key, clickhouse_password, clickhouse_ca = map(
            str, self.texts
        )
        bootstrap = found.stack.kafka["a"].sasl_bootstrap
        login = {"mechanism": "SCRAM-SHA-256", "username": USER, "password": {"file": kafka_password}}
        tls = {"caFile": kafka_ca, "certFile": kafka_certificate, "keyFile": kafka_key}
        cluster = {"name": "a", "bootstrapServers": bootstrap, "sasl": login, "tls": tls}
        config = first(found).config
        first(found).config = {
            **config,
            "kafka": {**config["kafka"], "clusters": [cluster]},
            "clickhouse": {
                "host": "127.0.0.1",
                "port": self.proxy.port,
                "password": {"file": clickhouse_password},
                "tls": {"caFile": clickhouse_ca},
            },
        }


@pytest.mark.parametrize(
    ("name", "lose", "why"),
    [
        ("kafka-password", vanish, "No such file or directory"),
        ("kafka-password", become_a_folder, "Is a directory"),
        ("kafka-key", vanish, "No such file or directory"),
        ("clickhouse-password", vanish, "No such file or directory"),
        ("clickhouse-ca", vanish, "No such file or directory"),
    ],
    ids=["kafka-password", "kafka-password-unreadable", "kafka-key", "clickhouse-password", "clickhouse-ca"],
)
def test_an_aggregator_without_a_secret_or_certificate_leaves_its_streams_to_others_until_it_is_put_back(
    servers: Stack,
    authority: Authority,
    over_tls: tuple[Proxy, Path],
    tmp_path: Path,
    name: str,
    lose: Callable[[Path], None],
    why: str,
) -> None:
    files, file = Guarded.made(authority, *over_tls, tmp_path), tmp_path / name
    problem = f"file {file} of the configuration cannot be read: {why}; put it back"
    label = f"{name}-{lose.__name__}".replace("_", "-")
    with loading(servers, tmp_path, label, settings=STARTS_AGAIN, before=files.configure) as found:
        table, poor = settled(found, label.replace("-", "_")), first(found)
        theirs = owned(found, second(found))
        lose(file)
        neighbour_flows(found, table, to=theirs)
        found.wait("the other one to have all streams", lambda: has_all(found, second(found)))
        assert poor.logged("files.unreadable")[-1]["error"] == problem
        assert f"out of the consumer groups: files: {problem}" in poor.get("/readyz")
        neighbour_flows(found, table)
        files.put_back(file)
        found.wait("each its share of the streams again", found.balanced)
        found.settle(table)
        fails_to_start_without(poor, file, lose, problem)
        neighbour_flows(found, table)
        files.put_back(file)
        found.heal()
        found.wait("each its share of the streams once more", found.balanced)
        found.settle(table)


def fails_to_start_without(
    aggregator: AggregatorProcess, file: Path, lose: Callable[[Path], None], problem: str
) -> None:
    aggregator.stop(60)
    lose(file)
    aggregator.start(wait=False)
    assert eventually(lambda: not aggregator.alive)
    assert aggregator.exit_code == 2
    text = aggregator.log.read_text(errors="replace")
    assert problem in text.splitlines()[-1]
    assert "Traceback" not in text
