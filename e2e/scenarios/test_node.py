"""The whole on a real node: the operator from its image by the chart, ClickHouse and PySpark in its pods, rows counted.

Run by `make e2e-node`, which needs root: `pytest -m node e2e/scenarios`.
"""

from __future__ import annotations

import base64
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from blockhouse_operator.api import names
from e2e.cluster import ClusterError
from e2e.cluster.surroundings import Surroundings
from e2e.scenarios.place import NAMESPACE, Place
from e2e.scenarios.resources import Manifest, at_home, example
from e2e.scenarios.site import RELEASE, SYSTEM
from e2e.scenarios.story import Story

pytestmark = pytest.mark.node

NAME, TABLE = "events", "default.clicks"
REPLICAS = (f"{NAME}-0-dc-a-0", f"{NAME}-0-dc-a-1")
MESSAGES_A_SECOND = 50
BLOCKHOUSE = Path(sys.executable).with_name("blockhouse")


def small(surroundings: Surroundings) -> Manifest:
    """One shard of two replicas that fit on this machine, with one table."""
    pipeline = at_home(example(), surroundings, namespace=NAMESPACE)
    spec = pipeline["spec"]
    spec["shards"] = 1
    spec["zones"] = [{"name": "dc-a", "replicas": 2}]
    spec["kafka"]["topic"]["partitions"] = 2
    spec["clickhouse"]["managed"] = {
        "image": "docker.io/blockhouse/clickhouse:dev",
        "storage": {"size": "1Gi"},
        "resources": {"requests": {"cpu": "100m", "memory": "256Mi"}, "limits": {"memory": "1Gi"}},
    }
    spec["tables"] = [{"name": TABLE, "ddl": DDL}]
    spec["aggregator"] = {
        "image": "docker.io/blockhouse/aggregator:dev",
        "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "1500Mi"}},
        "spark": {"master": "local[4]", "conf": {"spark.driver.memory": "512m", "spark.ui.enabled": "false"}},
    }
    return pipeline


DDL = """\
CREATE TABLE default.clicks (id UInt64, text String,
  _kafka_cluster String, _kafka_partition UInt32, _kafka_offset UInt64, _kafka_row UInt32)
ENGINE = ReplicatedMergeTree('/clickhouse/tables/{shard}/default.clicks', '{replica}')
ORDER BY (id, _kafka_cluster, _kafka_partition, _kafka_offset, _kafka_row)
SETTINGS replicated_deduplication_window = 10000
"""


def test_rows_are_stored_once_whatever_is_deleted_or_killed(place: Place) -> None:
    place.nodes.cluster.apply([small(place.surroundings)])
    place.wait("the pipeline is Ready", lambda: place.ready("ba", NAME), timeout=600)
    with producing(place) as producer:
        more_rows_arrive(place)
        delete_pod(place, REPLICAS[0])
        more_rows_arrive(place)
        kept = replica_pods(place)
        replace_operators(place)
        more_rows_arrive(place)
        assert replica_pods(place) == kept, "operators that are replaced restart nothing"
        kill_container(place, REPLICAS[1], "aggregator")
        more_rows_arrive(place)
        producer.finish()
    place.wait("the pipeline is Ready again", lambda: place.ready("ba", NAME), timeout=300)
    report = audited(place, producer.manifest)
    place.wait("the verifier has found nothing", lambda: place.holds(NAME, "VerifierHealthy", "True"), timeout=300)
    assert shows_a_fall_and_a_recovery(place.story), report


def shows_a_fall_and_a_recovery(story: Story) -> bool:
    """Ready was reached, was lost when the pod was deleted, and came back; the kubelet's Events are there, too."""
    ready = [
        (seen.reason, seen.text)
        for seen in story.observations
        if (seen.about, seen.condition) == (f"ba/{NAME}", "Ready")
    ]
    true = [text.startswith("True") for _, text in ready]
    lost = [reason for reason, text in ready if not text.startswith("True")]
    first = true.index(True)
    events = story.reasons("Event")
    return (
        true[-1]
        and False in true[first:]
        and "AllConsuming" in {reason for reason, _ in ready}
        and bool(set(lost) & {"NotEnoughReplicas", "PodsNotReady", "StreamsNotOwned", "ShardsNotReady", "Replaying"})
        and {"AllConsuming", "Killing", "Started"} <= set(events)
    )


def more_rows_arrive(place: Place, rows: int = 2000) -> None:
    """Waits until the second replica has so many rows more than now."""
    present = stored(place)
    place.wait(f"{rows} more rows than {present} have arrived", lambda: stored(place) >= present + rows, timeout=300)


def stored(place: Place) -> int:
    """Rows of the second replica; -1 while it does not answer."""
    try:
        return int(place.query(REPLICAS[1], f"SELECT count() FROM {TABLE}"))
    except (ClusterError, ValueError):
        return -1


def delete_pod(place: Place, replica: str) -> None:
    """As `kubectl delete pod` does it: the aggregator hands its streams over, and another pod takes the name."""
    before = place.get("pod", f"{replica}-0", "-n", NAMESPACE)["metadata"]["uid"]
    place.kubectl("delete", "pod", f"{replica}-0", "-n", NAMESPACE, "--wait=true", timeout=330)

    def replaced() -> bool:
        try:
            return bool(place.get("pod", f"{replica}-0", "-n", NAMESPACE)["metadata"]["uid"] != before)
        except ClusterError:
            return False

    place.wait(f"{replica} has another pod", replaced)


def replica_pods(place: Place) -> dict[str, tuple[str, int]]:
    """Uid and restarts of every replica's pod."""
    found = {}
    for replica in REPLICAS:
        pod = place.get("pod", f"{replica}-0", "-n", NAMESPACE)
        restarts = sum(status["restartCount"] for status in pod["status"]["containerStatuses"])
        found[replica] = (pod["metadata"]["uid"], restarts)
    return found


def replace_operators(place: Place) -> None:
    """Deletes every operator, the leader too, and waits until another one leads."""
    before = leader(place)
    place.kubectl("delete", "pod", "-l", "app.kubernetes.io/component=operator", "-n", SYSTEM, timeout=180)
    place.wait("another operator leads", lambda: leader(place) not in ("", before), timeout=180)


def leader(place: Place) -> str:
    """The holder of the lease; empty when there is none."""
    lease = place.get("lease", f"{RELEASE}-operator", "-n", SYSTEM)
    return str(lease["spec"].get("holderIdentity") or "")


def kill_container(place: Place, replica: str, container: str) -> None:
    """SIGKILL to the container's first process, as the kernel does when memory is short."""
    ctr = place.nodes.node.containerd.ctr
    pod = place.get("pod", f"{replica}-0", "-n", NAMESPACE)
    status = next(one for one in pod["status"]["containerStatuses"] if one["name"] == container)
    identity = status["containerID"].removeprefix("containerd://")
    done = ctr("tasks", "kill", "--signal", "SIGKILL", identity)
    assert done.returncode == 0, done.stderr

    def restarted() -> bool:
        found = place.get("pod", f"{replica}-0", "-n", NAMESPACE)["status"]["containerStatuses"]
        return any(one["name"] == container and one["restartCount"] > status["restartCount"] for one in found)

    place.wait(f"{container} of {replica} is started again", restarted)


class producing:
    """`blockhouse produce` to both Kafka clusters, from this machine, until `finish`."""

    def __init__(self, place: Place) -> None:
        self.manifest = place.folder / "manifest.jsonl"
        self._command = [
            *(str(BLOCKHOUSE), "produce", "--config", str(configuration(place)), "--manifest", str(self.manifest)),
            *("--messages", "1000000", "--rate", str(MESSAGES_A_SECOND), "--wait", "120"),
        ]
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> producing:
        self._process = subprocess.Popen(self._command)
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            self._process.kill()

    def finish(self) -> None:
        """Ends when every message that was sent is acknowledged."""
        assert self._process is not None
        self._process.send_signal(signal.SIGINT)
        self._process.wait(180)


def configuration(place: Place) -> Path:
    """The configuration file of a replica's aggregator, as it is in its pod; the ClickHouse login is the operator's."""
    files = place.get("configmap", f"{NAME}-0-config", "-n", NAMESPACE)["data"]
    content = yaml.safe_load(files[f"{REPLICAS[0]}.yaml"])
    content["clickhouse"] = {"user": "cluster", "password": {"env": "CLUSTER_PASSWORD"}}
    path = place.folder / "aggregator.yaml"
    path.write_text(yaml.safe_dump(content))
    return path


def audited(place: Place, manifest: Path) -> str:
    """What `blockhouse audit` prints: Kafka against both replicas, message by message. AssertionError unless exact."""
    secret = place.get("secret", names.password_secret(NAME), "-n", NAMESPACE)["data"]
    addresses = [place.get("pod", f"{replica}-0", "-n", NAMESPACE)["status"]["podIP"] for replica in REPLICAS]
    command = [str(BLOCKHOUSE), "audit", "--config", str(configuration(place)), "--manifest", str(manifest)]
    command += [word for address in addresses for word in ("--replica", f"{address}:9000")]
    environment = {**os.environ, "CLUSTER_PASSWORD": base64.b64decode(secret["password"]).decode()}
    done = subprocess.run(
        [*command, "--wait", "120"], capture_output=True, text=True, check=False, env=environment, timeout=300
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
