"""KafkaReassignment on a real API server and three real brokers: nothing moves before exactly the plan that was shown
is approved; every end, also that of the resource and of the operator, leaves no throttle and nothing half done."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.throttling import LISTS, RATES
from blockhouse.placement.model import TopicPartition
from e2e.cluster import ClusterError
from e2e.scenarios.resources import Manifest
from e2e.scenarios.site import Site
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from e2e.stack.process import wait_until

pytestmark = [
    pytest.mark.own_cluster("its operators are processes of this machine"),
    pytest.mark.xdist_group("moves"),  # its brokers are started once
]

BROKERS = (1, 2, 3)
SMALL_FETCHES = {"replica.fetch.max.bytes": "65536", "replica.fetch.response.max.bytes": "262144"}
SLOW = {"minRate": "1M", "maxRate": "1M", "interval": "5s", "capacity": {"default": "100M"}}
QUICK = {"minRate": "80M", "interval": "5s", "capacity": {"default": "1G"}}


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaClusterServers]:
    with kafka_cluster("moves", tmp_path_factory.mktemp("moves"), dict.fromkeys(BROKERS, SMALL_FETCHES)) as servers:
        yield servers


@pytest.fixture
def fleet(kafka: KafkaClusterServers) -> Iterator[KafkaFleet]:
    with KafkaFleet(KafkaCluster(name="moves", bootstrap_servers=kafka.bootstrap)) as fleet:
        yield fleet


def topic(kafka: KafkaClusterServers, fleet: KafkaFleet, name: str, megabytes: int = 20) -> list[TopicPartition]:
    """Two partitions on brokers 1 and 3 with some megabytes in each."""
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap})
    new = NewTopic(name, num_partitions=2, replica_assignment=[[1, 3], [3, 1]])
    admin.create_topics([new])[name].result(timeout=60)
    producer = Producer({"bootstrap.servers": kafka.bootstrap})
    for number in range(megabytes * 20):
        producer.produce(name, os.urandom(100_000), partition=number % 2)
        producer.poll(0)
        if number % 200 == 0:
            producer.flush(60)
    assert producer.flush(60) == 0
    keys = [TopicPartition(name, number) for number in (0, 1)]
    assert wait_until(lambda: all(fleet.partitions()[key].in_sync == {1, 3} for key in keys), timeout=60)
    return keys


def reassignment(kafka: KafkaClusterServers, name: str, namespace: str, about: str, **spec: Any) -> Manifest:
    """Replace broker 3 as far as it holds the topic."""
    return {
        "apiVersion": "ingest.blockhouse.dev/v1alpha1",
        "kind": "KafkaReassignment",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            "cluster": {"name": "a", "bootstrapServers": kafka.bootstrap},
            "operation": "ReplaceBrokers",
            "leaving": [3],
            "topics": {"include": [about]},
            **spec,
        },
    }


def status(site: Site, name: str, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = site.cluster.get("kr", name, "-n", namespace).get("status", {})
    return found


def wait_phase(site: Site, name: str, namespace: str, phase: str, timeout: float = 120) -> dict[str, Any]:
    found: dict[str, Any] = {}

    def reached() -> bool:
        nonlocal found
        found = status(site, name, namespace)
        return found.get("phase") == phase

    site.wait(f"kr {namespace}/{name} is {phase}", reached, timeout=timeout, show=lambda: found)
    return found


def throttles(fleet: KafkaFleet, about: str) -> dict[str, Any]:
    """What brokers and the topic have set."""
    found: dict[str, Any] = {str(id): given for id, given in fleet.broker_settings(BROKERS, RATES).items() if given}
    lists = fleet.topic_settings([about], LISTS).get(about)
    return found | ({about: lists} if lists else {})


def held(fleet: KafkaFleet, keys: list[TopicPartition]) -> set[int]:
    return {broker for key in keys for broker in fleet.partitions()[key].replicas}


def test_a_plan_is_shown_approved_carried_out_and_applied_again_without_a_difference(
    site: Site, namespace: str, kafka: KafkaClusterServers, fleet: KafkaFleet
) -> None:
    keys, name = topic(kafka, fleet, "approved"), "replace"
    manifest = reassignment(kafka, name, namespace, "approved", throttle=QUICK)
    began = site.cluster.audit.mark()
    with site.operator():
        site.apply(manifest)
        shown = wait_phase(site, name, namespace, "AwaitingApproval")
        plan = shown["plan"]
        assert (plan["partitions"], plan["replicasMoved"]) == (2, 2)
        assert 30_000_000 < plan["bytes"] < 60_000_000
        config = site.cluster.get("configmap", plan["configMap"], "-n", namespace)
        assert f'"hash": "{plan["hash"]}"' in config["data"]["plan.json"]
        assert "ownerReferences" not in config["metadata"], "it must outlive the resource"

        manifest["spec"]["approvedPlan"] = "0123456789abcdef"
        site.apply(manifest)
        refused = site.wait_condition(name, namespace, "Approved", "False", "OtherPlanApproved", kind="kr")
        assert plan["hash"] in refused["message"]
        assert fleet.moves() == {}
        assert held(fleet, keys) == {1, 3}
        assert throttles(fleet, "approved") == {}

        manifest["spec"]["approvedPlan"] = plan["hash"]
        site.apply(manifest)
        site.cluster.kubectl(
            "wait", f"kr/{name}", "-n", namespace, "--for=condition=Completed", "--timeout=150s", timeout=180
        )
        done = wait_phase(site, name, namespace, "Completed")
        assert (done["progress"]["done"], done["progress"]["remainingBytes"]) == (2, 0)
        assert held(fleet, keys) == {1, 2}
        assert throttles(fleet, "approved") == {}
        people_see(site, name, namespace, plan["hash"])
        applied_again(site, name, namespace, manifest)
        assert site.refused(began) == [], "the chart gives every right that is needed"


def applied_again(site: Site, name: str, namespace: str, manifest: Manifest) -> None:
    """As a GitOps tool does, which looks for differences first: it finds none, and what it applies is no change."""
    before = site.cluster.get("kr", name, "-n", namespace)["metadata"]["generation"]
    text = json.dumps(manifest)
    assert site.cluster.kubectl("diff", "--server-side", "--force-conflicts", "-f", "-", stdin=text) == ""
    site.apply(manifest)
    assert site.cluster.get("kr", name, "-n", namespace)["metadata"]["generation"] == before


def people_see(site: Site, name: str, namespace: str, hash: str) -> None:
    """The columns of `kubectl get kr`, and the Events of a reassignment from plan to end."""
    head, row, *_ = site.cluster.kubectl("get", "kr", name, "-n", namespace).splitlines()
    assert head.split()[:6] == ["NAME", "OPERATION", "PHASE", "PLAN", "PARTITIONS", "DONE"]
    assert row.split()[:5] == [name, "ReplaceBrokers", "Completed", hash, "2"]
    events = site.cluster.get("events", "-n", namespace)["items"]
    reasons = {event["reason"] for event in events if event["involvedObject"]["name"] == name}
    assert {"PlanFrozen", "OtherPlanApproved", "Approved", "AllMoved", "ThrottleSet"} <= reasons, reasons


def test_an_operator_that_is_killed_in_the_middle_is_continued_by_the_next(
    site: Site, namespace: str, kafka: KafkaClusterServers, fleet: KafkaFleet
) -> None:
    keys, name = topic(kafka, fleet, "killed", megabytes=30), "resumed"
    manifest = reassignment(kafka, name, namespace, "killed", throttle={**SLOW, "minRate": "3M", "maxRate": "3M"})
    operator = site.start_operator()
    try:
        site.apply(manifest)
        plan = wait_phase(site, name, namespace, "AwaitingApproval")["plan"]
        manifest["spec"]["approvedPlan"] = plan["hash"]
        site.apply(manifest)
        site.wait("partitions move", lambda: bool(fleet.moves()), timeout=60)
    finally:
        operator.kill()
    assert throttles(fleet, "killed"), "Kafka keeps the throttle without an operator"
    with site.operator():
        found = wait_phase(site, name, namespace, "Completed", timeout=240)
    assert found["plan"]["hash"] == plan["hash"], "the same plan, read from its record"
    assert held(fleet, keys) == {1, 2}
    assert throttles(fleet, "killed") == {}
    assert throttle_record(site, namespace) == "", "nothing is ours any more"


def throttle_record(site: Site, namespace: str) -> str:
    found = site.cluster.get("configmap", "-n", namespace, "-l", "app.kubernetes.io/component=throttle")["items"]
    return str(found[0]["metadata"]["name"]) if found else ""


def test_a_resource_deleted_without_an_operator_is_taken_back_by_the_next_one(
    site: Site, namespace: str, kafka: KafkaClusterServers, fleet: KafkaFleet
) -> None:
    keys, name = topic(kafka, fleet, "deleted", megabytes=40), "taken-back"
    manifest = reassignment(kafka, name, namespace, "deleted", throttle=SLOW, onDelete="Cancel")
    operator = site.start_operator()
    try:
        site.apply(manifest)
        manifest["spec"]["approvedPlan"] = wait_phase(site, name, namespace, "AwaitingApproval")["plan"]["hash"]
        site.apply(manifest)
        site.wait("partitions move", lambda: bool(fleet.moves()), timeout=60)
    finally:
        operator.kill()
    site.cluster.kubectl("delete", "kr", name, "-n", namespace, "--timeout=30s", timeout=60)
    assert fleet.moves(), "a resource without a finalizer is gone at once, and Kafka continues"
    assert throttle_record(site, namespace)
    with site.operator():
        site.wait("nothing moves", lambda: not fleet.moves(), timeout=90)
        site.wait("no throttle is left", lambda: throttles(fleet, "deleted") == {}, timeout=60)
        site.wait("no record is left", lambda: records(site, namespace) == [], timeout=60)
    assert held(fleet, keys) == {1, 3}


def records(site: Site, namespace: str) -> list[str]:
    selector = "app.kubernetes.io/component in (reassignment,throttle)"
    found = site.cluster.get("configmap", "-n", namespace, "-l", selector)["items"]
    return [one["metadata"]["name"] for one in found]


def test_two_queue_pause_holds_and_what_others_move_is_left_alone(
    site: Site, namespace: str, kafka: KafkaClusterServers, fleet: KafkaFleet
) -> None:
    first, second = topic(kafka, fleet, "first", megabytes=15), topic(kafka, fleet, "second", megabytes=2)
    foreign = topic(kafka, fleet, "foreign", megabytes=15)
    one = reassignment(kafka, "one", namespace, "first", throttle=SLOW)
    two = reassignment(kafka, "two", namespace, "second", throttle=QUICK)
    with site.operator():
        site.apply(one, two)
        for manifest in (one, two):
            name = manifest["metadata"]["name"]
            manifest["spec"]["approvedPlan"] = wait_phase(site, name, namespace, "AwaitingApproval")["plan"]["hash"]
        site.apply(one)
        wait_phase(site, "one", namespace, "Executing")
        fleet.change_broker(
            2, {"follower.replication.throttled.rate": "1000000"}
        )  # of another tool, on the same broker
        fleet.change_topic("foreign", {"follower.replication.throttled.replicas": "0:2"})
        assert fleet.reassign({foreign[0]: (1, 2)}) == {}
        site.apply(two)
        wait_phase(site, "two", namespace, "Queued")
        assert f"{namespace}/one" in site.condition("kr", "two", namespace, "Executing")["message"]
        assert (
            fleet.topic_settings(["foreign"], LISTS)["foreign"]["follower.replication.throttled.replicas"].value
            == "0:2"
        )

        one["spec"] |= {"paused": True, "throttle": QUICK}
        site.apply(one)
        site.wait("what moved of it has ended", lambda: not set(first) & set(fleet.moves()), timeout=120)
        fleet.change_broker(2, {}, ["follower.replication.throttled.rate"])
        one["spec"]["paused"] = False
        site.apply(one)
        wait_phase(site, "one", namespace, "Completed", timeout=180)
        wait_phase(site, "two", namespace, "Completed", timeout=180)
        site.wait("the other move has ended", lambda: not fleet.moves(), timeout=120)
    assert held(fleet, [*first, *second]) == {1, 2}
    assert fleet.partitions()[foreign[0]].replicas == (1, 2), "where the other tool moves it"
    lists = fleet.topic_settings(["foreign"], LISTS)["foreign"]
    assert lists["follower.replication.throttled.replicas"].value == "0:2", "what others set is as they left it"


def test_a_spec_that_cannot_be_used_is_refused_or_stalls(
    site: Site, namespace: str, kafka: KafkaClusterServers
) -> None:
    bare = reassignment(kafka, "bare", namespace, "x", throttle={"capacity": {"default": "1250"}})
    with pytest.raises(ClusterError, match=r"throttle.capacity.default"):
        site.apply(bare)
    nothing = reassignment(kafka, "nothing", namespace, "no-such-topic")
    unheard = reassignment(kafka, "unheard", namespace, "x")
    unheard["spec"] |= {"clusterRef": {"blockAggregator": "none", "cluster": "a"}}
    del unheard["spec"]["cluster"]
    with site.operator():
        site.apply(nothing, unheard)
        failed = site.wait_condition("nothing", namespace, "PlanReady", "False", "PlanFailed", kind="kr")
        assert "no topic matches 'no-such-topic'" in failed["message"]
        stalled = site.wait_condition("unheard", namespace, "Stalled", "True", "InvalidSpec", kind="kr")
        assert "no BlockAggregator none" in stalled["message"]
