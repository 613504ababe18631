"""Configurations the servers are given: sizes and settings of the spec must reach them."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

from e2e.stack import Stack, StackError, StackSpec
from e2e.stack.kafka import KAFKA_VERSION, KafkaBroker, jars
from e2e.stack.server import render

ROOT = Path(__file__).parents[3]


def properties(broker: KafkaBroker) -> dict[str, str]:
    """As Java reads them: the last line of a key wins."""
    lines = [line for line in broker.render_config().splitlines() if line and not line.startswith("#")]
    return dict(line.split("=", 1) for line in lines)


def test_a_single_broker_is_its_own_controller_and_replicates_nothing(tmp_path: Path) -> None:
    broker = Stack(tmp_path, StackSpec()).kafka["b"].brokers[0]

    config = properties(broker)

    assert config["process.roles"] == "broker,controller"
    assert config["offsets.topic.replication.factor"] == "1"
    assert config["auto.create.topics.enable"] == "false"
    assert f"PLAINTEXT://127.0.0.1:{broker.port}" in config["listeners"]
    assert "SASL://" not in config["listeners"]


@pytest.mark.parametrize(
    ("brokers", "controllers", "replication"), [(2, [1], "2"), (3, [1, 2, 3], "3"), (4, [1, 2, 3], "3")]
)
def test_a_larger_cluster_has_an_odd_number_of_controllers_and_a_rack_for_each_broker(
    tmp_path: Path, brokers: int, controllers: list[int], replication: str
) -> None:
    cluster = Stack(tmp_path, StackSpec(kafka_clusters=1, brokers=brokers)).kafka["a"]

    configs = [properties(broker) for broker in cluster.brokers]

    assert [n for n, c in enumerate(configs, start=1) if "controller" in c["process.roles"]] == controllers
    assert {c["controller.quorum.voters"] for c in configs} == {configs[0]["controller.quorum.voters"]}
    assert configs[0]["controller.quorum.voters"].count("@") == len(controllers)
    assert [c["broker.rack"] for c in configs] == [f"r{n}" for n in range(1, brokers + 1)]
    assert {c["default.replication.factor"] for c in configs} == {replication}
    assert cluster.bootstrap.count(",") == brokers - 1


def test_own_broker_properties_override_the_template(tmp_path: Path) -> None:
    spec = StackSpec(kafka_properties={"auto.create.topics.enable": "true"})

    assert properties(Stack(tmp_path, spec).kafka["a"].brokers[0])["auto.create.topics.enable"] == "true"


def test_passwords_open_a_sasl_listener_and_stay_out_of_the_configuration(tmp_path: Path) -> None:
    cluster = Stack(tmp_path, StackSpec(kafka_scram={"loader": "s3cret"})).kafka["a"]

    text = cluster.brokers[0].render_config()

    assert f"SASL://{cluster.sasl_bootstrap}" in text
    assert "s3cret" not in text


def test_clickhouse_knows_its_place_and_all_its_peers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("e2e.stack.clickhouse_program.shutil.which", lambda *_, **__: "/usr/sbin/clickhouse-server")
    spec = StackSpec(
        shards=2,
        replicas=3,
        clickhouse="18.16",
        clickhouse_zk_timeout_ms=4321,
        merge_tree={"parts_to_throw_insert": "7"},
    )
    stack = Stack(tmp_path, spec)
    server = stack.clickhouse[2, 3]
    server.folder.mkdir()

    command = server.prepare()

    config = ET.parse(server.folder / "config.xml").getroot()
    assert str(server.folder / "config.xml") in command[-1]
    assert (config.findtext("macros/shard"), config.findtext("macros/replica")) == ("02", "r3")
    assert config.findtext("tcp_port") == str(server.port)
    assert config.findtext("zookeeper/node/port") == str(stack.zookeeper.port)
    assert config.findtext("zookeeper/session_timeout_ms") == "4321"
    assert config.findtext("merge_tree/parts_to_throw_insert") == "7"
    assert config.findtext("merge_tree/zookeeper_session_expiration_check_period") == "2"
    shards = [
        [int(port.text or 0) for port in shard.iterfind("replica/port")]
        for shard in config.iterfind("remote_servers/blockhouse/shard")
    ]
    assert shards == [[stack.clickhouse[s, r].port for r in (1, 2, 3)] for s in (1, 2)]


def test_a_template_with_a_missing_value_is_refused() -> None:
    with pytest.raises(KeyError, match="port"):
        render("zoo.cfg", data="/d", host="127.0.0.1")


def test_missing_jars_report_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("BLOCKHOUSE_CACHE", str(tmp_path))
    # a set that was not completed is as bad as none
    (tmp_path / f"kafka-{KAFKA_VERSION}").mkdir()

    with pytest.raises(StackError, match="make setup"):
        jars()


def test_the_version_of_the_jars_is_the_one_setup_fetches() -> None:
    pom = (ROOT / "scripts/kafka-broker/pom.xml").read_text()

    assert f"<kafka.version>{KAFKA_VERSION}</kafka.version>" in pom


@pytest.mark.parametrize("field", ["kafka_clusters", "brokers", "shards", "replicas"])
def test_a_stack_of_nothing_is_refused(field: str) -> None:
    sizes: dict[str, Any] = {field: 0}
    with pytest.raises(ValueError, match=field):
        StackSpec(**sizes)
