"""The throttle commands on a real cluster of three brokers, as a person uses them beside another tool's move."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.throttling import LISTS, RATES
from blockhouse.placement.model import PartitionMap
from blockhouse.throttle.model import Role
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from tests.integration.throttled_moves import BROKERS, SMALL_FETCHES, create, is_left, settings_left
from tests.unit.load.test_prometheus import Server, server

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

__all__ = ["server"]  # a fixture

BLOCKHOUSE = Path(sys.executable).with_name("blockhouse")


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaClusterServers]:
    with kafka_cluster("commands", tmp_path_factory.mktemp("commands"), dict.fromkeys(BROKERS, SMALL_FETCHES)) as up:
        yield up


@pytest.fixture
def fleet(kafka: KafkaClusterServers) -> Iterator[KafkaFleet]:
    with KafkaFleet(KafkaCluster(name="commands", bootstrap_servers=kafka.bootstrap)) as fleet:
        yield fleet


def test_a_command_that_is_killed_leaves_the_throttle_and_the_next_one_ends_it(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path
) -> None:
    plan = create(kafka, fleet, "command", 60)
    (key,) = plan
    file, record = tmp_path / "plan.json", tmp_path / "record.json"
    partition = {"topic": "command", "partition": 0, "replicas": [3, 2]}
    file.write_text(json.dumps({"version": 1, "partitions": [partition]}))
    command = [
        str(BLOCKHOUSE), "topics", "apply", str(file), "--execute",
        "--bootstrap-server", kafka.bootstrap, "--state", str(record), "--interval", "2",
    ]  # fmt: skip
    running = subprocess.Popen([*command, "--throttle", "3MB/s"], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        assert wait_until(lambda: key in fleet.moves(), timeout=60)
    finally:
        running.send_signal(signal.SIGKILL)
        running.wait()
    rates = fleet.broker_settings([3], RATES)
    assert rates[3][Role.FOLLOWER.rate_setting].value == "3000000"
    done = subprocess.run([*command, "--throttle", "60MB/s"], capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, (done.stdout, done.stderr)
    assert is_left(fleet, "command")


class Commands:
    """`blockhouse topics throttle` on one cluster with one record."""

    def __init__(self, kafka: KafkaClusterServers, record: Path) -> None:
        self._live = ("--bootstrap-server", kafka.bootstrap, "--state", str(record))

    def __call__(self, *arguments: str) -> subprocess.CompletedProcess[str]:
        command = [str(BLOCKHOUSE), "topics", "throttle", *arguments, *self._live]
        return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)

    def start(self, *arguments: str) -> subprocess.Popen[bytes]:
        command = [str(BLOCKHOUSE), "topics", "throttle", *arguments, *self._live]
        return subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)

    def rows(self) -> list[dict[str, Any]]:
        done = self("status", "--json")
        assert done.returncode == 0, done.stderr
        found: list[dict[str, Any]] = json.loads(done.stdout)
        return found


def rate_of(fleet: KafkaFleet, broker: int, role: Role) -> str:
    found = fleet.broker_settings([broker], RATES)[broker].get(role.rate_setting)
    return found.value if found else ""


def test_a_move_of_another_tool_is_throttled_followed_and_left_clean(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path
) -> None:
    throttle = Commands(kafka, tmp_path / "record.json")
    assert "nothing moves" in throttle("status").stdout
    assert throttle("set", "2MB/s").returncode == 0
    assert is_left(fleet, "others"), "nothing moves, so nothing is set"
    plan: PartitionMap = create(kafka, fleet, "others", 50)
    fleet.change_broker(1, {Role.LEADER.rate_setting: "500001"})  # the other tool's own, so that there is time to look
    fleet.change_topic("others", {Role.LEADER.list_setting: "0:1"})
    assert fleet.reassign(plan) == {}
    running = throttle.start("run", "--interval", "1", "--until-done")
    try:
        assert wait_until(lambda: rate_of(fleet, 3, Role.FOLLOWER) == "2000000", timeout=60)
        rows = {(row["broker"], row["role"]): row for row in throttle.rows()}
        assert rows.keys() == {(1, "leader"), (2, "leader"), (3, "follower")}
        assert rows[3, "follower"]["why"] == "an override"
        assert rows[1, "leader"]["rate"] == 500_001, "it is respected"
        assert throttle("set", "1MB/s", "--broker", "3", "--expires", "1h").returncode == 0
        assert rate_of(fleet, 3, Role.FOLLOWER) == "1000000", "at once"
        assert rate_of(fleet, 2, Role.LEADER) == "2000000"
        assert rate_of(fleet, 1, Role.LEADER) == "500001"
        assert throttle("clear", "--broker", "3").returncode == 0
        assert throttle("set", "80MB/s", "--auto-remove").returncode == 0
        assert rate_of(fleet, 3, Role.FOLLOWER) == "80000000"
        fleet.change_broker(1, {}, [Role.LEADER.rate_setting])
        assert running.wait(120) == 0
    finally:
        running.kill()
        running.wait()
    left = settings_left(fleet, "others")
    assert {name: found.value for name, found in left.pop("others").items()} == {Role.LEADER.list_setting: "0:1"}
    assert left == {}
    record = json.loads((tmp_path / "record.json").read_text())
    assert record["overrides"] == {"everywhere": None, "brokers": {}}, "it was to end with the move"


def test_a_rate_is_fixed_over_http_while_the_command_runs(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path
) -> None:
    plan: PartitionMap = create(kafka, fleet, "http", 40)
    throttle, ports = Commands(kafka, tmp_path / "record.json"), Ports()
    throttle("set", "1MB/s")
    fleet.change_broker(1, {Role.LEADER.rate_setting: "500001"})  # another tool's, so that there is time to look
    fleet.change_topic("http", {Role.LEADER.list_setting: "0:1"})
    assert fleet.reassign(plan) == {}
    address = f"http://127.0.0.1:{ports['http']}"
    running = throttle.start("run", "--interval", "60", "--http", address.removeprefix("http://"))
    try:
        assert wait_until(lambda: rate_of(fleet, 3, Role.FOLLOWER) == "1000000", timeout=60)
        shown = http("GET", f"{address}/throttle")
        assert {(rate["broker"], rate["role"]): rate["rate"] for rate in shown["rates"]}[3, "follower"] == 1_000_000
        assert http("PUT", f"{address}/throttle/3", {"rate": "2MB/s"})["rate"] == 2_000_000
        assert wait_until(lambda: rate_of(fleet, 3, Role.FOLLOWER) == "2000000", timeout=45), "not in a minute: at once"
        http("POST", f"{address}/throttle/remove/3")
        http("POST", f"{address}/throttle?rate=90&autoremove=true")
        assert wait_until(lambda: rate_of(fleet, 3, Role.FOLLOWER) == "90000000", timeout=60)
        fleet.change_broker(1, {}, [Role.LEADER.rate_setting])
        assert wait_until(lambda: not fleet.moves(), timeout=60)
        running.terminate()
        assert running.wait(60) == 0
        assert throttle("run", "--interval", "1", "--until-done").returncode == 0
    finally:
        running.kill()
        running.wait()
        ports.release()
    assert {name: found.value for name, found in settings_left(fleet, "http")["http"].items()} == {
        Role.LEADER.list_setting: "0:1"
    }


def http(method: str, address: str, body: dict[str, str] | None = None) -> Any:
    data = json.dumps(body).encode() if body is not None else None
    with urllib.request.urlopen(urllib.request.Request(address, data, method=method), timeout=20) as answer:
        return json.load(answer)


def figures(server: Server, total: object, moved: object = 0) -> None:
    """What brokers send and receive by their metrics, all the same."""

    def all_of_them(value: object) -> list[tuple[dict[str, str], Any]]:
        return [({"pod": f"kafka-{id}"}, value) for id in BROKERS]

    server.answers = {
        "timestamp(": all_of_them(time.time()),
        "_replicationbytes": all_of_them(0),
        "_reassignmentbytes": all_of_them(moved),
        'topicmetrics_bytesin_total{topic=""}': all_of_them(total),
        'topicmetrics_bytesout_total{topic=""}': all_of_them(total),
    }


def test_absurd_figures_mean_the_minimum_and_a_silent_source_stops_nothing(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path, server: Server
) -> None:
    """`server` plays Prometheus; all else is real."""
    config = tmp_path / "load.yaml"
    config.write_text(json.dumps({"load": {"source": "prometheus", "prometheus": {"url": server.url}}}))
    plan: PartitionMap = create(kafka, fleet, "absurd", 100)
    throttle = Commands(kafka, tmp_path / "record.json")
    figures(server, 1_000_000)
    assert fleet.reassign(plan) == {}
    fleet.change_broker(1, {Role.LEADER.rate_setting: "300001"})  # another tool's, so that there is time to look
    fleet.change_topic("absurd", {Role.LEADER.list_setting: "0:1"})
    running = throttle.start(
        "run", "--interval", "1", "--until-done", "--capacity", "100MB/s", "--min-rate", "2MB/s", "--max-rate", "4MB/s",
        "--source-config", str(config),
    )  # fmt: skip
    try:
        for total, moved in (("NaN", 0), ("+Inf", 0), (100 * 100_000_000, 0), (-5, 0), (0, 1_000_000)):
            assert wait_until(lambda: rate_of(fleet, 3, Role.FOLLOWER) == "4000000", timeout=60), "good figures"
            figures(server, total, moved)
            assert wait_until(lambda: rate_of(fleet, 3, Role.FOLLOWER) == "2000000", timeout=60), (total, moved)
            figures(server, 1_000_000)
        server.bodies = {"": (503, b"overloaded")}
        assert throttle("status").returncode == 0
        fleet.change_broker(1, {}, [Role.LEADER.rate_setting])
        assert running.wait(150) == 0, "it ends without its source of load"
    finally:
        running.kill()
        running.wait()
    fleet.change_topic("absurd", {}, [Role.LEADER.list_setting])
    assert is_left(fleet, "absurd")


def test_what_a_lost_record_left_is_adopted_and_cleared(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path
) -> None:
    create(kafka, fleet, "lost", 1)
    fleet.change_broker(1, {Role.LEADER.rate_setting: "5000000"})
    fleet.change_topic("lost", {Role.LEADER.list_setting: "0:1"})
    throttle = Commands(kafka, tmp_path / "record.json")
    assert throttle("clear", "--all").returncode == 0
    assert fleet.topic_settings(["lost"], LISTS)["lost"], "what is not ours stays"
    assert throttle("clear", "--all", "--adopt").returncode == 0
    assert is_left(fleet, "lost")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("set", "50"), "has no unit"),
        (("set", "50MB/s", "--expires", "soon"), "expected a number with ms, s, m, h or d"),
        (("clear", "--all", "--broker", "1"), "contradict each other"),
    ],
)
def test_bad_input_is_exit_code_2_and_changes_nothing(
    kafka: KafkaClusterServers, tmp_path: Path, arguments: tuple[str, ...], words: str
) -> None:
    record = tmp_path / "record.json"
    done = Commands(kafka, record)(*arguments)
    assert done.returncode == 2, done.stderr
    assert words in done.stderr
    assert not record.exists()


def test_a_script_that_gives_no_capacity_is_asked_to_decide(kafka: KafkaClusterServers, tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "x", "partition": 0, "replicas": [1]}]}))
    command = [str(BLOCKHOUSE), "topics", "apply", str(plan), "--execute", "--bootstrap-server", kafka.bootstrap]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)
    assert done.returncode == 2
    assert "--capacity" in done.stderr
    assert "--throttle none" in done.stderr
