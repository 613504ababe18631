"""The names of a run: of its processes, and of groups of them. Pure.

Names in the first shard have no shard in them, as if there were no other: what was written for one shard means
the same in a run of two.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

KAFKA = ("kafka-a", "kafka-b")
EVERYTHING = "everything"


def pod_name(shard: int, replica: int) -> str:
    """(1, 2) -> r2, (2, 1) -> s2-r1."""
    return f"r{replica}" if shard == 1 else f"s{shard}-r{replica}"


def pod_of(process: str) -> str:
    """The pod of an aggregator or a ClickHouse server: aggregator-s2-r1 -> s2-r1."""
    return process.partition("-")[2]


@dataclass(frozen=True, slots=True)
class Layout:
    """`shards` of `replicas` pods each, with one ZooKeeper, two Kafka clusters and a verifier for all of them."""

    replicas: int
    shards: int = 1

    @property
    def processes(self) -> list[str]:
        pods = [name for shard in self._shards for name in self.shard(shard)]
        return ["zookeeper", *KAFKA, "verifier", *pods]

    @property
    def names(self) -> Iterable[str]:
        """Everything a fault may name."""
        return {*self.processes, *self.groups}

    @property
    def zones(self) -> dict[str, list[str]]:
        """Two zones with a Kafka cluster and half of each shard's replicas; ZooKeeper and verifier are in neither."""
        half = -(-self.replicas // 2)
        found: dict[str, list[str]] = {}
        for zone, numbers in (("a", range(1, half + 1)), ("b", range(half + 1, self.replicas + 1))):
            pods = [pod_name(shard, n) for shard in self._shards for n in numbers]
            found[f"zone-{zone}"] = [f"kafka-{zone}", *(name for pod in pods for name in _containers(pod))]
        return found

    @property
    def groups(self) -> dict[str, list[str]]:
        """Names of several processes: everything, zones, pods, all of a kind and, of several, whole shards."""
        pods = [pod for shard in self._shards for pod in self.pods(shard)]
        kinds = {f"{kind}s": [f"{kind}-{pod}" for pod in pods] for kind in ("aggregator", "clickhouse")}
        shards = {f"shard-{shard}": self.shard(shard) for shard in self._shards if self.shards > 1}
        everything = {EVERYTHING: self.processes}
        return {**everything, **self.zones, **{f"replica-{pod}": _containers(pod) for pod in pods}, **kinds, **shards}

    def pods(self, shard: int) -> list[str]:
        return [pod_name(shard, replica) for replica in range(1, self.replicas + 1)]

    def shard(self, shard: int) -> list[str]:
        """All processes of one shard alone."""
        return [name for pod in self.pods(shard) for name in _containers(pod)]

    def shard_of(self, pod: str) -> int:
        """Raises StopIteration for a pod of none."""
        return next(shard for shard in self._shards if pod in self.pods(shard))

    def members(self, name: str) -> list[str]:
        """Names of the processes that `name` stands for."""
        return self.groups.get(name, [name])

    @property
    def _shards(self) -> range:
        return range(1, self.shards + 1)


def _containers(pod: str) -> list[str]:
    return [f"clickhouse-{pod}", f"aggregator-{pod}"]
