"""The pod of a KafkaMirror on a real node, between real brokers: it moves records, and its successor continues.

Run by `make e2e-node`, which needs root: `pytest -m node e2e/scenarios`.
"""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from blockhouse.config.mirror import MirrorConfig
from blockhouse_mirror.audit.judge import audit
from blockhouse_operator.api.labels import MIRROR
from e2e.kit.mirror import ends
from e2e.kit.mirror_feed import Feed
from e2e.scenarios.mirrors import MADE, NAME, mirror
from e2e.scenarios.place import NAMESPACE, Place
from e2e.scenarios.resources import Manifest
from e2e.stack.server import StackError

pytestmark = pytest.mark.node

TOPIC, PARTITIONS = "moved", 2
SMALL: dict[str, Any] = {
    "targetTopics": {"replicationFactor": 1, "interval": "1s"},
    "commitInterval": "200ms",
    "image": "docker.io/blockhouse/aggregator:dev",
    "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "1500Mi"}},
    "spark": {"master": "local[2]"},
}


def between(place: Place) -> Manifest:
    """The example between the brokers at the other end of the node's wire, as a pod that fits on it."""
    source, target = ({"name": n, "bootstrapServers": place.surroundings.kafka[n].bootstrap} for n in "ab")
    return mirror(NAMESPACE, source=source, target=target, topics={"include": [TOPIC]}, **SMALL)


def test_a_mirror_pod_moves_records_and_its_successor_continues(place: Place) -> None:
    source = place.surroundings.kafka["a"]
    source.create_topic(TOPIC, partitions=PARTITIONS)
    with Feed(source.bootstrap, TOPIC, range(PARTITIONS), seed=1, rate=200):
        place.nodes.cluster.apply([between(place)])
        place.wait("the mirror is Ready", lambda: place.ready("km", NAME))
        more_are_copied(place)
        first = pod_of(place)
        place.kubectl("delete", "pod", "-n", NAMESPACE, "-l", f"{MIRROR}={NAME}", "--wait=true", timeout=180)
        more_are_copied(place)
        assert pod_of(place)[0] != first[0]
    written = sum(ends(source, TOPIC, PARTITIONS).values())
    place.wait("everything is copied", lambda: copied(place) == written)
    place.wait("the last positions are written", lambda: compared(place) == written)
    assert pod_of(place)[1] == 0, "no container had to be started again"
    place.kubectl("delete", "km", NAME, "-n", NAMESPACE, "--timeout=60s", timeout=90)


def more_are_copied(place: Place, records: int = 1000) -> None:
    present = copied(place)
    place.wait(f"{records} more records than {present} are copied", lambda: copied(place) >= present + records)


def copied(place: Place) -> int:
    """Records of the target; 0 while it has no such topic."""
    try:
        return sum(ends(place.surroundings.kafka["b"], TOPIC, PARTITIONS).values())
    except StackError:
        return 0


def compared(place: Place) -> int:
    """Records that the audit judges, all of them equal. AssertionError for one that is not."""
    text = place.get("configmap", MADE, "-n", NAMESPACE)["data"]["mirror.yaml"]
    found = list(audit(MirrorConfig.model_validate(yaml.safe_load(text) | {"admin": {}})))
    assert [each for each in found if not each.exact] == []
    return sum(each.compared for each in found)


def pod_of(place: Place) -> tuple[str, int]:
    """Uid of the mirror's one pod, and how often its container was started again."""
    (pod,) = place.get("pods", "-n", NAMESPACE, "-l", f"{MIRROR}={NAME}")["items"]
    return pod["metadata"]["uid"], pod["status"]["containerStatuses"][0]["restartCount"]
