"""KafkaMirror on a real API server: applied, shown, changed, suspended, deleted; a wrong one is a condition. Its pod is
played by a node of KWOK's and the simulator, in a namespace that admits `restricted` pods only."""

from __future__ import annotations

import base64
import urllib.request

import pytest

from blockhouse.contract.mirror import STATUS, MirrorStatus
from blockhouse_operator.api.labels import REBALANCE
from e2e.cluster import ClusterError
from e2e.scenarios.mirrors import MADE, NAME, applied_again, left, mirror, pods, status, wait_mirroring
from e2e.scenarios.resources import Manifest, secret
from e2e.scenarios.site import Site
from e2e.simulator.pods import ANNOTATION

pytestmark = pytest.mark.own_cluster("its pods are played by nodes of KWOK's")


def secrets(namespace: str, password: str = "p") -> list[Manifest]:
    """What the example refers to."""
    return [
        secret("kafka-east-ca", namespace, **{"ca.crt": "ca"}),
        secret("kafka-agg-ca", namespace, **{"ca.crt": "ca"}),
        secret("kafka-agg-client", namespace, **{"tls.crt": "crt", "tls.key": "key"}),
        secret("kafka-east-login", namespace, password=password),
    ]


def wait_replaced(site: Site, namespace: str, before: dict[str, str]) -> dict[str, str]:
    """Waits until another pod than before mirrors; returns it."""
    site.wait("the former pod is gone", lambda: not before.keys() & pods(site, namespace).keys(), timeout=90)
    return wait_mirroring(site, namespace)


def asked(site: Site, namespace: str) -> int:
    """How often the driver was asked for even tasks."""
    data = site.cluster.get("secret", MADE, "-n", namespace)["data"]
    base = site.simulator.mirror_url.format(namespace=namespace, mirror=MADE)
    headers = {"Authorization": f"Bearer {base64.b64decode(data['token']).decode()}"}
    with urllib.request.urlopen(urllib.request.Request(base + STATUS.path, headers=headers), timeout=5) as answer:
        return MirrorStatus.parse(answer.read()).rebalances["Requested"]


def test_the_life_of_a_mirror(site: Site, namespace: str) -> None:
    began = site.cluster.audit.mark()
    with site.operator():
        site.apply(mirror(namespace))
        stalled = site.wait_condition(NAME, namespace, "Stalled", "True", "SecretMissing", kind="km", timeout=60)
        assert "kafka-east-login" in stalled["message"]
        site.apply(*secrets(namespace))
        first = wait_mirroring(site, namespace)
        assert len(first) == 1
        people_see(site, namespace)
        applied_again(site, mirror(namespace))

        wrong_specs(site, namespace)
        assert pods(site, namespace) == first, "what cannot be used replaces nothing"
        site.apply(mirror(namespace))
        assert wait_mirroring(site, namespace) == first

        site.cluster.kubectl("annotate", "km", NAME, f"{REBALANCE}=now", "-n", namespace)
        site.wait("the request is taken away", lambda: REBALANCE not in annotated(site, namespace), timeout=60)
        assert asked(site, namespace) == 1

        site.apply(mirror(namespace, onGap="Skip"))
        second = wait_replaced(site, namespace, first)
        site.apply(*secrets(namespace, password="another"))
        third = wait_replaced(site, namespace, second)
        site.cluster.kubectl("annotate", "pod", *third.values(), f"{ANNOTATION}=stopped", "-n", namespace)
        stopped = site.wait_condition(NAME, namespace, "Ready", "False", "PartitionsStopped", kind="km", timeout=120)
        assert "t/1: RetentionOvertook" in stopped["message"]
        assert status(site, namespace)["phase"] == "Degraded"

        site.apply(mirror(namespace, suspend=True))
        site.wait_condition(NAME, namespace, "Suspended", "True", kind="km", timeout=60)
        site.wait("no pod is left", lambda: pods(site, namespace) == {}, timeout=60)
        site.cluster.kubectl("delete", "km", NAME, "-n", namespace, "--timeout=30s", timeout=60)
        site.wait(
            "nothing is left", lambda: left(site, namespace) == [], timeout=90, show=lambda: left(site, namespace)
        )
        assert site.refused(began) == [], "the chart gives every right that is needed"


def annotated(site: Site, namespace: str) -> dict[str, str]:
    found: dict[str, str] = site.cluster.get("km", NAME, "-n", namespace)["metadata"].get("annotations", {})
    return found


def people_see(site: Site, namespace: str) -> None:
    """The columns of `kubectl get km`, the status and the Events."""
    head, row, *_ = site.cluster.kubectl("get", "km", NAME, "-n", namespace).splitlines()
    assert head.split()[:7] == ["NAME", "READY", "REASON", "PHASE", "SOURCE", "TARGET", "TASKS"]
    assert row.split()[:8] == [NAME, "True", "AllMirrored", "Mirroring", "east", "agg", "1", "2"]
    found = status(site, namespace)
    assert (found["rate"], found["partitions"]["held"]) == ("13 MB/s", 2)
    assert found["offending"][0]["advice"] == "more partitions"
    events = site.cluster.get("events", "-n", namespace)["items"]
    reasons = {event["reason"] for event in events if event["involvedObject"]["name"] == NAME}
    assert {"SecretMissing", "AllMirrored", "PartitionTooHeavy"} <= reasons, reasons


def wrong_specs(site: Site, namespace: str) -> None:
    """The API server refuses what its rules can judge; the rest is a condition that names the field."""
    with pytest.raises(ClusterError, match="ExactlyOnce is not there yet"):
        site.apply(mirror(namespace, delivery="ExactlyOnce"))
    with pytest.raises(ClusterError, match="expected from 1% to 100%"):
        site.apply(mirror(namespace, load__utilization="170%"))
    site.apply(mirror(namespace, topics__include=["events-("]))
    stalled = site.wait_condition(NAME, namespace, "Stalled", "True", "InvalidSpec", kind="km", timeout=60)
    assert "spec.topics.include[0]" in stalled["message"]
