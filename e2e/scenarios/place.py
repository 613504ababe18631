"""A real node with the operator on it, for the scenarios of `make e2e-node`, and the story of what happened there."""

from __future__ import annotations

import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from e2e.cluster import ClusterError
from e2e.cluster.surroundings import Surroundings
from e2e.node import NodeCluster
from e2e.scenarios.site import is_ready
from e2e.scenarios.story import Story
from e2e.stack.process import wait_until

NAMESPACE = "ingest"


@dataclass
class Place:
    """A node with the operator on it, Kafka and ZooKeeper at the other end of its wire."""

    nodes: NodeCluster
    surroundings: Surroundings
    story: Story
    folder: Path

    def kubectl(self, *arguments: str, timeout: float = 120) -> str:
        return self.nodes.cluster.kubectl(*arguments, timeout=timeout)

    def get(self, *arguments: str) -> Any:
        return self.nodes.cluster.get(*arguments)

    def wait(self, what: str, condition: Any, timeout: float = 300) -> None:
        if not wait_until(condition, timeout=timeout, interval=0.5):
            seen = "\n".join(map(str, self.story.observations[-40:]))
            raise ClusterError(f"not within {timeout:g} s: {what}\n{seen}\n{self.shown()[-6000:]}")

    def ready(self, kind: str, name: str) -> bool:
        return is_ready(self.get(kind, name, "-n", NAMESPACE))

    def query(self, replica: str, sql: str) -> str:
        words = ("clickhouse-client", "--query", sql)
        return self.kubectl("exec", f"{replica}-0", "-n", NAMESPACE, "-c", "clickhouse", "--", *words).strip()

    def holds(self, name: str, condition: str, status: str) -> bool:
        """Whether a pipeline has the condition."""
        found = self.get("ba", name, "-n", NAMESPACE)["status"].get("conditions", ())
        return any((one["type"], one["status"]) == (condition, status) for one in found)

    def shown(self) -> str:
        """What a person would read first."""
        looks = (("get", "ba,csi,km"), ("get", "pods", "-o", "wide"), ("describe", "ba,km"))
        return "\n".join(f"$ kubectl {' '.join(look)}\n{self.look(*look)}" for look in looks)

    def look(self, *arguments: str, namespace: str = NAMESPACE) -> str:
        """What kubectl prints, or why it prints nothing."""
        try:
            return self.kubectl(*arguments, "-n", namespace)
        except ClusterError as error:
            return f"{error}\n"


def keep_story(place: Place) -> None:
    """Leaves what happened in `.run/e2e-node.txt`, and the last words of every container in `.run/e2e-node-logs`."""
    target = Path(__file__).parents[2] / ".run" / "e2e-node.txt"
    target.parent.mkdir(exist_ok=True)
    seen = "\n".join(map(str, place.story.observations))
    target.write_text(f"What was reported, in order\n\n{seen}\n\nHow it was in the end\n\n{place.shown()}\n")
    logs = target.with_name("e2e-node-logs")
    shutil.rmtree(logs, ignore_errors=True)
    logs.mkdir()
    for pod in place.get("pods", "-A")["items"]:
        namespace, name = pod["metadata"]["namespace"], pod["metadata"]["name"]
        for container in pod["spec"]["containers"]:
            text = place.look("logs", name, "-c", container["name"], "--tail=2000", namespace=namespace)
            (logs / f"{name}.{container['name']}.txt").write_text(text)
