"""What dies, disappears or refuses in the middle of a KafkaReassignment on real brokers with a quorum of controllers.

The operator's reconciles run in a process of their own. Each fault has a clear state, nothing copies unthrottled, and
nothing is left behind.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.kafka_client import connect
from blockhouse.fleet.throttling import RATES
from blockhouse.throttle.model import Role
from e2e.moves.kubernetes import Desk
from e2e.moves.process import OperatorProcess
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from e2e.stack.process import wait_until
from tests.integration.reassignments import Reassignment
from tests.integration.throttled_moves import MB, SMALL_FETCHES, Writer, create

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]

BROKERS = (1, 2, 3, 4)
CONTROLLERS = {1, 2, 3}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaClusterServers]:
    with kafka_cluster("faults", tmp_path_factory.mktemp("faults"), dict.fromkeys(BROKERS, SMALL_FETCHES)) as up:
        yield up


@pytest.fixture
def cluster(kafka: KafkaClusterServers) -> KafkaCluster:
    return KafkaCluster(name="faults", bootstrap_servers=kafka.bootstrap)


@pytest.fixture
def fleet(cluster: KafkaCluster) -> Iterator[KafkaFleet]:
    with KafkaFleet(cluster) as fleet:
        yield fleet


@pytest.fixture
def moved(kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path) -> Iterator[Reassignment]:
    """A topic of 40 MB on brokers 1 and 2, and an operator."""
    (key,) = create(kafka, fleet, tmp_path.name, 40)
    operator = OperatorProcess(tmp_path)
    try:
        yield Reassignment(kafka.bootstrap, fleet, Desk(tmp_path), key)
    finally:
        operator.kill()


@contextlib.contextmanager
def dead(kafka: KafkaClusterServers, fleet: KafkaFleet, broker: int) -> Iterator[None]:
    """The broker is killed, and starts again at the end."""
    server = kafka.brokers[broker - 1]
    server.kill()
    try:
        assert wait_until(lambda: broker not in fleet.brokers(), timeout=60)
        yield
    finally:
        server.start()
        assert wait_until(lambda: broker in fleet.brokers(), timeout=60)


def test_a_source_that_dies_is_replaced_by_another_that_is_throttled_already(
    moved: Reassignment, kafka: KafkaClusterServers, fleet: KafkaFleet
) -> None:
    moved.apply((2, 3), "3M")
    moved.wait_copying(3)
    assert fleet.partitions()[moved.key].leader == 1
    with dead(kafka, fleet, 1):
        moved.wait("another leads", lambda: fleet.partitions()[moved.key].leader == 2)
        assert Role.LEADER.rate_setting in fleet.broker_settings([2], RATES)[2]
        assert moved.throttled(3)
        moved.wait_completed()
        assert fleet.partitions()[moved.key].in_sync == {2, 3}
    moved.wait_clean()


def test_a_destination_that_dies_is_named_and_waited_for(
    moved: Reassignment, kafka: KafkaClusterServers, fleet: KafkaFleet
) -> None:
    moved.apply((2, 3), "3M")
    moved.wait_copying(3)
    with dead(kafka, fleet, 3):
        moved.wait("it is named", lambda: moved.condition("Executing")[1] == "BrokerNotAlive")
        assert "broker 3" in moved.condition("Executing")[2]
    moved.wait_completed()
    moved.wait_clean()


def active_controller(cluster: KafkaCluster) -> int:
    """Raises AssertionError unless the quorum has three voters."""
    with contextlib.closing(connect(cluster)) as admin:
        found = admin.describe_metadata_quorum()
    partition = found["topics"][0]["partitions"][0]
    assert {voter["replica_id"] for voter in partition["current_voters"]} == CONTROLLERS
    return int(partition["leader_id"])


def test_a_controller_that_dies_changes_nothing(
    kafka: KafkaClusterServers, fleet: KafkaFleet, cluster: KafkaCluster, tmp_path: Path
) -> None:
    controller = active_controller(cluster)
    source, destination = sorted(CONTROLLERS - {controller})
    (key,) = create(kafka, fleet, "controlled", 40, (source, 4))
    operator, moved = OperatorProcess(tmp_path), Reassignment(kafka.bootstrap, fleet, Desk(tmp_path), key)
    try:
        moved.apply((4, destination), "3M")
        moved.wait_copying(destination)
        with dead(kafka, fleet, controller):
            assert wait_until(lambda: active_controller(cluster) != controller, timeout=60)
            assert moved.throttled(destination)
            moved.wait_completed()
        moved.wait_clean()
    finally:
        operator.kill()


def test_a_topic_that_is_deleted_in_the_middle_is_left_out(moved: Reassignment, fleet: KafkaFleet) -> None:
    moved.apply((2, 3), "1M")
    moved.wait_copying(3)
    fleet.delete_topic(moved.key.topic)
    moved.wait_completed()
    assert moved.status["progress"]["skipped"] == 1
    assert "left out" in moved.condition("Completed")[2]
    moved.wait_clean()


def test_a_writer_that_is_faster_than_the_throttle_is_reported_and_a_higher_rate_ends_it(
    moved: Reassignment, kafka: KafkaClusterServers
) -> None:
    with contextlib.closing(Writer(kafka.bootstrap, moved.key.topic, 4 * MB)):
        moved.apply((2, 3), "1M")
        moved.wait("a stall", lambda: moved.condition("ThrottleStalled")[0] == "True", timeout=30)
        assert "needed, at most 1 MB/s possible" in moved.condition("ThrottleStalled")[2]
        assert moved.status["progress"]["eta"] in ("", "never")
        moved.apply((2, 3), "60M")
        moved.wait_completed()
    moved.wait_clean()


def test_a_plan_whose_writes_do_not_fit_is_reported_before_it_is_approved(
    moved: Reassignment, kafka: KafkaClusterServers, fleet: KafkaFleet
) -> None:
    with contextlib.closing(Writer(kafka.bootstrap, moved.key.topic, 4 * MB)):
        moved.apply((2, 3), "1M", approve=False)
        moved.wait("a stall", lambda: moved.condition("ThrottleStalled")[0] == "True", timeout=30)
        assert moved.status["phase"] == "AwaitingApproval"
        assert "broker 3 (follower)" in moved.condition("ThrottleStalled")[2]
        assert "needed, at most 1 MB/s possible" in moved.condition("ThrottleStalled")[2]
        moved.apply((2, 3), "60M", approve=False)
        moved.wait("it fits", lambda: moved.condition("ThrottleStalled")[0] == "False", timeout=30)
    assert fleet.moves() == {}
    assert moved.throttles() == {}


def test_what_moves_when_the_approval_is_taken_back_ends_throttled_and_clean(
    moved: Reassignment, fleet: KafkaFleet
) -> None:
    moved.apply((2, 3), "4M")
    moved.wait_copying(3)
    moved.apply((2, 3), "4M", approve=False)
    moved.wait("it is held", lambda: moved.condition("Approved")[0] == "False")
    assert moved.throttled(3)
    moved.wait("it has ended", lambda: not fleet.moves(), timeout=60)
    moved.wait_clean()
    assert fleet.partitions()[moved.key].in_sync == {2, 3}


def test_a_partition_that_another_tool_moves_is_waited_for_and_planned_again(
    moved: Reassignment, fleet: KafkaFleet
) -> None:
    moved.apply((2, 3), "60M", approve=False)
    first = moved.status["plan"]["hash"]
    topic, others = moved.key.topic, Role.LEADER
    fleet.change_broker(1, {others.rate_setting: "500001"})  # so that it takes a while
    fleet.change_topic(topic, {others.list_setting: "0:1"})
    assert fleet.reassign({moved.key: (1, 4)}) == {}
    moved.apply((2, 3), "60M")
    moved.wait("it is named", lambda: moved.condition("Executing")[1] == "ForeignReassignment")
    assert fleet.moves()[moved.key].target == (1, 4), "it goes where the other tool moves it"
    assert moved.throttles().keys() == {1, topic}, "the other tool's, and nothing of ours"
    fleet.change_broker(1, {}, [others.rate_setting])
    moved.wait("another plan", lambda: moved.status["plan"]["hash"] not in ("", first), timeout=120)
    assert moved.condition("Approved")[0] == "False"
    moved.apply((2, 3), "60M")
    moved.wait_completed()
    assert fleet.partitions()[moved.key].in_sync == {2, 3}
    fleet.change_topic(topic, {}, [others.list_setting])
    moved.wait_clean()
