"""A mirror that runs while the password for its clusters is replaced: in Kafka first, in the file later."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from confluent_kafka import Producer

from blockhouse_mirror.runtime.driver import EXIT_FENCED, EXIT_OK
from e2e.kit.mirror import MirrorProcess, ends
from e2e.stack import StackSpec
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from e2e.stack.process import wait_until
from tests.integration.test_kafka_login import FORMER, PRESENT, TOPIC, USER, accept, replaced

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(600)]

RECORDS = 100
Clusters = dict[str, KafkaClusterServers]


@pytest.fixture
def kafka(tmp_path: Path) -> Iterator[Clusters]:
    spec = StackSpec(kafka_scram={USER: FORMER})
    with ExitStack() as servers:
        yield {name: servers.enter_context(kafka_cluster(name, tmp_path, {1: {}}, spec)) for name in ("a", "b")}


@pytest.fixture
def secrets(tmp_path: Path) -> dict[str, Path]:
    files = {name: tmp_path / f"password-{name}" for name in ("a", "b")}
    for file in files.values():
        file.write_text(FORMER)
    return files


@pytest.fixture
def mirror(kafka: Clusters, tmp_path: Path, secrets: dict[str, Path]) -> Iterator[MirrorProcess]:
    """One that logs in to both clusters and has mirrored RECORDS records."""
    kafka["a"].create_topic(TOPIC, partitions=1)
    mirror = MirrorProcess(kafka, tmp_path, "password", TOPIC)
    for name, part in (("a", "source"), ("b", "target")):
        login = {"mechanism": "SCRAM-SHA-256", "username": USER, "password": {"file": str(secrets[name])}}
        mirror.document[part] = {"name": name, "bootstrapServers": kafka[name].sasl_bootstrap, "sasl": login}
    mirror.start()
    try:
        produce(kafka["a"])
        assert wait_until(lambda: mirror.caught_up(ends(kafka["a"], TOPIC, 1)), timeout=120), errors(mirror)
        yield mirror
    finally:
        mirror.kill()


@pytest.mark.parametrize("side", ["a", "b"], ids=["source", "target"])
def test_records_wait_for_the_new_password_and_each_is_mirrored_once(
    kafka: Clusters, mirror: MirrorProcess, secrets: dict[str, Path], side: str
) -> None:
    replaced(kafka[side], PRESENT)
    produce(kafka["a"])
    assert wait_until(lambda: "uthentication" in errors(mirror), timeout=90), errors(mirror)

    secrets[side].write_text(PRESENT)
    mirrored_once(kafka, mirror, side)


def test_a_mirror_continues_after_a_commit_that_its_target_never_answers(
    kafka: Clusters, mirror: MirrorProcess, secrets: dict[str, Path]
) -> None:
    """A commit is under way when the broker ends, which comes back with another password."""
    (broker,) = kafka["b"].brokers
    accept(kafka["b"], PRESENT)
    broker.freeze()
    produce(kafka["a"])
    assert wait_until(lambda: "has not answered a commit" in errors(mirror), timeout=60), errors(mirror)
    broker.kill()
    broker.start()
    assert wait_until(lambda: "uthentication" in errors(mirror), timeout=90), errors(mirror)

    secrets["b"].write_text(PRESENT)
    mirrored_once(kafka, mirror, "b")


def mirrored_once(kafka: Clusters, mirror: MirrorProcess, side: str) -> None:
    """Where a login was refused, the mirror continues, reports no error any more, and both topics have the same."""
    caught_up = wait_until(lambda: kept_running(mirror, side).caught_up(ends(kafka["a"], TOPIC, 1)), timeout=180)
    assert caught_up, errors(mirror)
    assert wait_until(lambda: errors(mirror) == "", timeout=60), errors(mirror)
    assert mirror.terminate() == EXIT_OK
    for name, part in (("a", "source"), ("b", "target")):
        mirror.document[part] = {"name": name, "bootstrapServers": kafka[name].bootstrap}
    (found,) = mirror.audit(TOPIC)
    assert (found.exact, found.compared) == (True, 2 * RECORDS)


def kept_running(mirror: MirrorProcess, side: str) -> MirrorProcess:
    """As by Kubernetes. One that was no member of its group on the target for longer than a session ends."""
    if mirror.ended:
        assert (side, mirror.wait()) == ("b", EXIT_FENCED)
        mirror.start()
    return mirror


def produce(kafka: KafkaClusterServers) -> None:
    """RECORDS more; returns when the broker has them."""
    producer = Producer({"bootstrap.servers": kafka.bootstrap, "log_level": 0})
    for number in range(RECORDS):
        producer.produce(TOPIC, f"{number}".encode(), partition=0)
    assert producer.flush(60) == 0


def errors(mirror: MirrorProcess) -> str:
    """What its status states that does not work; nothing while it does not answer."""
    status = mirror.status()
    return " ".join(status.errors.values()) if status is not None else "no answer"
