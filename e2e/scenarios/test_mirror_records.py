"""KafkaMirror on a real API server, between real brokers: its pod is a process of this machine, and records move."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from e2e.kit.mirror import ends
from e2e.kit.mirror_feed import Feed
from e2e.scenarios.mirror_pod import MirrorPod
from e2e.scenarios.mirrors import NAME, applied_again, left, mirror, pods, status, wait_mirroring
from e2e.scenarios.resources import Manifest
from e2e.scenarios.site import Site

pytestmark = pytest.mark.own_cluster("its pod is a process beside nodes of KWOK's")

PARTITIONS = 4
AHEAD_MS = 2 * 3600 * 1000
ANY_TIME = {"message.timestamp.after.max.ms": str((1 << 63) - 1)}
"""Of a topic: without it a broker refuses a record that is more than an hour ahead."""
QUICK: dict[str, Any] = {
    "targetTopics": {"replicationFactor": 1, "interval": "1s"},
    "load": {
        "interval": "1s",
        "window": "10s",
        "default": "1Ki",
        "capacity": "400Ki",
        "maxTasks": 2,
        "tolerance": "50%",
    },
    "rebalance": {"cooldown": "3s", "quietHours": ["00:00-12:00", "12:00-00:00"]},
    "commitInterval": "200ms",
    "onRefused": "DeadLetter",
    "spark": {"master": "local[2]"},
}


def between(site: Site, namespace: str, topics: str, pod: MirrorPod, **changes: Any) -> Manifest:
    """The example between the brokers of the site, quick to react."""
    source, target = (site.surroundings.kafka[name].bootstrap for name in "ab")
    return mirror(
        namespace,
        source={"name": "a", "bootstrapServers": source},
        target={"name": "b", "bootstrapServers": target},
        topics={"include": [topics]},
        template={"pod": {"metadata": {"annotations": pod.annotations}}},
        **{**QUICK, **changes},
    )


def tasks(site: Site, namespace: str) -> tuple[int, int]:
    """Tasks that the load asks for, and those that run."""
    found = status(site, namespace).get("tasks", {})
    return found.get("assigned", 0), found.get("running", 0)


@pytest.mark.long
def test_a_mirror_moves_records_through_its_whole_life(site: Site, namespace: str, tmp_path: Path) -> None:
    source, topic = site.surroundings.kafka["a"], f"{namespace}-events"
    source.create_topic(topic, partitions=PARTITIONS)
    pod = MirrorPod(site, namespace, tmp_path)
    manifest = between(site, namespace, f"{topic}.*", pod)
    feed = Feed(source.bootstrap, topic, range(PARTITIONS), seed=1, rate=800)
    began = site.cluster.audit.mark()
    with site.operator(), pod:
        site.apply(manifest)
        first = wait_mirroring(site, namespace)
        grows_and_shrinks(site, manifest, feed)
        keeps_a_letter(site, namespace, f"{topic}-early")
        assert pods(site, namespace) == first, "nothing of this replaces the pod"
        is_suspended(site, manifest, pod)
        feed.write(500)
        site.apply(manifest)
        assert wait_mirroring(site, namespace).keys().isdisjoint(first)
        is_copied(site, topic)
        site.cluster.kubectl("delete", "km", NAME, "-n", namespace, "--timeout=30s", timeout=60)
        site.wait("nothing is left", lambda: left(site, namespace) == [], timeout=90)
        site.wait("the process has ended in order", lambda: pod.exits == [0, 0], timeout=90)
        assert site.refused(began) == [], "the chart gives every right that is needed"
    found = {(each.topic, each.partition): each for each in pod.process.audit()}
    assert [each for each in found.values() if not each.exact] == []
    assert found[f"{topic}-early", 0].refused.tolist() == [0]
    written = sum(ends(source, topic, PARTITIONS).values())
    assert sum(each.compared for each in found.values() if each.topic == topic) == written


def grows_and_shrinks(site: Site, manifest: Manifest, feed: Feed) -> None:
    """Two tasks while records come, with what people see of them then; one when they do not."""
    namespace = manifest["metadata"]["namespace"]
    with feed:
        site.wait("two tasks carry the load", lambda: tasks(site, namespace) == (2, 2), timeout=120)
        for kind, reason in (("Balanced", "TasksEven"), ("WithinLatency", "InTime"), ("LoadKnown", "")):
            site.wait_condition(NAME, namespace, kind, "True", reason, kind="km", timeout=60)
        site.wait_condition(NAME, namespace, "DeadLetters", "False", "NoneRefused", kind="km", timeout=60)
        applied_again(site, manifest)
    site.wait("one task is enough again", lambda: tasks(site, namespace) == (1, 1), timeout=120)


def keeps_a_letter(site: Site, namespace: str, topic: str) -> None:
    """Of a topic that takes a record which the target refuses."""
    source = site.surroundings.kafka["a"]
    source.create_topic(topic, partitions=1, config=ANY_TIME)
    refused(source.bootstrap, topic)
    found = site.wait_condition(NAME, namespace, "DeadLetters", "True", "RecordsRefused", kind="km", timeout=120)
    assert f"{topic}/0" in found["message"]


def is_suspended(site: Site, manifest: Manifest, pod: MirrorPod) -> None:
    namespace = manifest["metadata"]["namespace"]
    site.apply(manifest | {"spec": manifest["spec"] | {"suspend": True}})
    site.wait_condition(NAME, namespace, "Suspended", "True", kind="km", timeout=60)
    site.wait("the process has ended in order", lambda: pod.exits == [0], timeout=90)


def is_copied(site: Site, topic: str) -> None:
    """Waits until the target has as many records as the source."""
    written = sum(ends(site.surroundings.kafka["a"], topic, PARTITIONS).values())

    def copied() -> int:
        return sum(ends(site.surroundings.kafka["b"], topic, PARTITIONS).values())

    site.wait("what came meanwhile is mirrored, too", lambda: copied() == written, timeout=90)


def refused(bootstrap: str, topic: str) -> None:
    """Write a record whose time the source takes and the target does not."""
    producer = Producer({"bootstrap.servers": bootstrap})
    producer.produce(topic, b"too early", partition=0, timestamp=int(time.time() * 1000) + AHEAD_MS)
    assert producer.flush(60) == 0
