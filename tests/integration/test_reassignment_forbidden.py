"""What brokers deny the user of the operator, by ACLs and by quotas: it is named in a condition with the user and the
remedy, nothing moves unthrottled, what others set is untouched, and it continues when it may.
"""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.execution import Pace, execute
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.kafka_client import KafkaRequests
from blockhouse.fleet.throttle_store import FileStore
from blockhouse.throttle.model import Role
from e2e.moves.kubernetes import Desk
from e2e.moves.process import OperatorProcess
from e2e.stack.kafka import KafkaClusterServers, jars, kafka_cluster
from e2e.stack.process import wait_until
from e2e.stack.spec import StackSpec
from tests.integration.reassignments import Reassignment
from tests.integration.test_throttle import guard_of
from tests.integration.throttled_moves import BROKERS, MB, SMALL_FETCHES, create, is_left, settings_left

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

USER, PASSWORD = "operator", "not-secret"
AUTHORIZED = SMALL_FETCHES | {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
    "allow.everyone.if.no.acl.found": "true",
}
"""Brokers among themselves, and the test, do not log in and may do everything; the operator does."""
LOGIN = {"sasl": {"mechanism": "SCRAM-SHA-256", "username": USER, "secretRef": {"name": "kafka", "key": "password"}}}
CLUSTER = "kafka-cluster"
FOREIGN_RATE, FOREIGN_ENTRY = "7000001", "7:1"
"""Of another tool: high enough, so that what is respected does not slow the test down."""


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaClusterServers]:
    spec, folder = StackSpec(kafka_scram={USER: PASSWORD}), tmp_path_factory.mktemp("forbidden")
    with kafka_cluster("forbidden", folder, dict.fromkeys(BROKERS, AUTHORIZED), spec) as up:
        yield up


@pytest.fixture
def fleet(kafka: KafkaClusterServers) -> Iterator[KafkaFleet]:
    with KafkaFleet(KafkaCluster(name="forbidden", bootstrap_servers=kafka.bootstrap)) as fleet:
        yield fleet


@pytest.fixture
def as_user(kafka: KafkaClusterServers, monkeypatch: pytest.MonkeyPatch) -> KafkaCluster:
    """The same cluster by the operator's user."""
    monkeypatch.setenv("PASSWORD", PASSWORD)
    login = {"mechanism": "SCRAM-SHA-256", "username": USER, "password": {"env": "PASSWORD"}}
    cluster = {"name": "forbidden", "bootstrap_servers": kafka.sasl_bootstrap, "sasl": login}
    return KafkaCluster.model_validate(cluster)


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """With an operator."""
    desk, operator = Desk(tmp_path), OperatorProcess(tmp_path)
    desk.secret("kafka", {"password": PASSWORD})
    try:
        yield desk
    finally:
        operator.kill()


@pytest.mark.parametrize(
    ("kind", "operation", "words", "right"),
    [
        (ResourceType.BROKER, AclOperation.ALTER_CONFIGS, "settings of broker", "AlterConfigs --cluster"),
        (ResourceType.BROKER, AclOperation.ALTER, "alter_partition_reassignments", "Alter --cluster"),
        (ResourceType.TOPIC, AclOperation.ALTER_CONFIGS, "settings of topic", "AlterConfigs --topic TOPIC"),
        (ResourceType.BROKER, AclOperation.DESCRIBE_CONFIGS, "settings of broker", "DescribeConfigs --cluster"),
        (ResourceType.TOPIC, AclOperation.DESCRIBE_CONFIGS, "settings of topic", "DescribeConfigs --topic TOPIC"),
        (ResourceType.BROKER, AclOperation.DESCRIBE, "list_partition_reassignments", "Describe --cluster"),
    ],
    ids=["rate", "move", "list", "reading rates", "reading lists", "moves"],
)
def test_what_kafka_forbids_is_named_and_nothing_moves(
    kafka: KafkaClusterServers,
    fleet: KafkaFleet,
    desk: Desk,
    kind: ResourceType,
    operation: AclOperation,
    words: str,
    right: str,
) -> None:
    topic = f"forbidden-{kind.name}-{operation.name}"
    (key,) = create(kafka, fleet, topic, 5)
    fleet.change_broker(2, {Role.FOLLOWER.rate_setting: FOREIGN_RATE})
    fleet.change_topic(topic, {Role.FOLLOWER.list_setting: FOREIGN_ENTRY})
    assert wait_until(lambda: settings_left(fleet, topic).keys() >= {"2", topic}, timeout=60)
    before = settings_left(fleet, topic)
    moved = Reassignment(kafka.sasl_bootstrap, fleet, desk, key, LOGIN)
    try:
        with denied(kafka, kind, topic if kind is ResourceType.TOPIC else CLUSTER, operation):
            moved.apply((2, 3), "60M", plan=False)
            moved.approve_what_is_shown_until("Stalled", "ReassignmentRefused")
            message = moved.condition("Stalled")[2]
            assert words in message
            named = f"user {USER} lacks a right: kafka-acls --add --allow-principal User:{USER} --operation "
            assert named + right.replace("TOPIC", topic) in message
            assert fleet.moves() == {}
            assert fleet.partitions()[key].replicas == (1, 2)
            left = settings_left(fleet, topic)
            assert left["2"][Role.FOLLOWER.rate_setting] == before["2"][Role.FOLLOWER.rate_setting]
            assert FOREIGN_ENTRY in left[topic][Role.FOLLOWER.list_setting].value
        moved.approve_what_is_shown_until("Completed", "AllMoved")
        moved.wait("nothing is recorded", lambda: "moved-throttle" not in desk.records(), timeout=120)
        assert is_left(fleet, topic, before), "what others set is as they left it"
        assert moved.condition("Stalled")[0] != "True"
    finally:
        fleet.change_broker(2, {}, [Role.FOLLOWER.rate_setting])
        fleet.change_topic(topic, {}, [Role.FOLLOWER.list_setting])


def test_a_topic_that_is_hidden_in_the_middle_is_not_taken_for_deleted(
    kafka: KafkaClusterServers, fleet: KafkaFleet, desk: Desk
) -> None:
    (key,) = create(kafka, fleet, "hidden", 40)
    moved = Reassignment(kafka.sasl_bootstrap, fleet, desk, key, LOGIN)
    moved.apply((2, 3), "3M")
    moved.wait_copying(3)
    with denied(kafka, ResourceType.TOPIC, "hidden", AclOperation.DESCRIBE):
        moved.wait("it is named", lambda: moved.condition("Stalled")[1] == "ReassignmentRefused")
        assert "--operation Describe --topic hidden" in moved.condition("Stalled")[2]
        assert moved.throttled(3) or key not in fleet.moves()
        assert moved.status["progress"]["skipped"] == 0
    moved.wait_completed()
    assert moved.status["progress"]["skipped"] == 0
    moved.wait_clean()


def test_a_quota_of_requests_is_named_and_it_continues_when_there_is_room(
    kafka: KafkaClusterServers, fleet: KafkaFleet, desk: Desk, as_user: KafkaCluster
) -> None:
    (key,) = create(kafka, fleet, "delayed", 5)
    moved = Reassignment(kafka.sasl_bootstrap, fleet, desk, key, LOGIN)
    with quota(kafka, "request_percentage=0.001"):
        moved.apply((2, 3), "60M", plan=False)
        moved.approve_what_is_shown_until("Executing", "QuotaExceeded", "AllMoved")  # or it continues slowly
        impatient = KafkaRequests(as_user, patience=0.1)
        with contextlib.closing(impatient):
            assert wait_until(lambda: "has exceeded" in held_back(impatient), timeout=60, interval=0)
            message = held_back(impatient)
        assert f"describe_cluster back: user {USER} has exceeded its quota request_percentage" in message
        assert f"kafka-configs --alter --entity-type users --entity-name {USER}" in message
    moved.approve_what_is_shown_until("Completed", "AllMoved")
    moved.wait_clean()


def held_back(requests: KafkaRequests) -> str:
    """Why a request is not answered; empty when it is."""
    try:
        requests.ask("describe_cluster")
    except Retryable as error:
        return f"{error.reason}: {error}"
    return ""


def test_a_quota_of_topics_and_partitions_is_named(
    kafka: KafkaClusterServers, fleet: KafkaFleet, as_user: KafkaCluster
) -> None:
    with quota(kafka, "controller_mutation_rate=0.01"):
        assert wait_until(lambda: refused_by_quota(as_user) != "", timeout=60, interval=0.5)
        message = refused_by_quota(as_user)
        assert message.startswith("QuotaExceeded: ")
        assert f"_topics back: user {USER} has exceeded its quota controller_mutation_rate" in message
        assert "limited-later" not in fleet.topic_ids()
    with KafkaFleet(as_user) as allowed:
        allowed.create_topic("limited-later", 1, 1, {})
    assert wait_until(lambda: "limited-later" in fleet.topic_ids(), timeout=60)


def refused_by_quota(cluster: KafkaCluster) -> str:
    """Empty while there is room for topics of 50 partitions."""
    with KafkaFleet(cluster) as fleet:
        try:
            fleet.create_topic("limited", 50, 1, {})
            fleet.delete_topic("limited")
        except Retryable as error:
            return f"{error.reason}: {error}"
    return ""


@pytest.mark.parametrize("operation", [AclOperation.ALTER_CONFIGS, AclOperation.DESCRIBE_CONFIGS])
def test_a_command_that_is_refused_in_the_middle_leaves_nothing(
    kafka: KafkaClusterServers, fleet: KafkaFleet, as_user: KafkaCluster, tmp_path: Path, operation: AclOperation
) -> None:
    topic = f"refused-{operation.name}"
    plan = create(kafka, fleet, topic, 1)
    store = FileStore(tmp_path / "record.json", fleet.cluster_id())
    with denied(kafka, ResourceType.TOPIC, topic, operation), KafkaFleet(as_user) as limited:
        with pytest.raises(Permanent, match=rf"user {USER} lacks a right: .* --topic {topic} grants it"):
            for _ in execute(limited, plan, lambda _: None, Pace(), guard_of(limited, store, plan, 60 * MB)):
                pass
        assert fleet.moves() == {}
        assert is_left(fleet, topic), "rates are set before lists, and removed when those are refused"


@contextlib.contextmanager
def denied(
    kafka: KafkaClusterServers, kind: ResourceType, name: str, operation: AclOperation, *, user: str = USER
) -> Iterator[None]:
    """The user may do everything with the resource, but not this."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})

    def rule(what: AclOperation, permission: AclPermissionType) -> AclBinding:
        return AclBinding(kind, name, ResourcePatternType.LITERAL, f"User:{user}", "*", what, permission)

    rules = [rule(AclOperation.ALL, AclPermissionType.ALLOW), rule(operation, AclPermissionType.DENY)]
    for made in admin.create_acls(rules).values():
        made.result(timeout=60)
    try:
        yield
    finally:
        every = AclBindingFilter(
            kind, name, ResourcePatternType.LITERAL, None, None, AclOperation.ANY, AclPermissionType.ANY
        )
        for gone in admin.delete_acls([every]).values():
            gone.result(timeout=60)


@contextlib.contextmanager
def quota(kafka: KafkaClusterServers, value: str, *, user: str = USER) -> Iterator[None]:
    """A quota of the user, by Kafka's own command: no client in Python can set one."""

    def change(*what: str) -> None:
        command = ["java", "-cp", f"{jars()}/*", "kafka.admin.ConfigCommand", "--bootstrap-server", kafka.bootstrap]
        command += ["--alter", "--entity-type", "users", "--entity-name", user, *what]
        done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    change("--add-config", value)
    try:
        yield
    finally:
        change("--delete-config", value.partition("=")[0])
