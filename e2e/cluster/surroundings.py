"""What a pipeline needs besides Kubernetes: real Kafka clusters and a ZooKeeper, where the cluster can reach them."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from e2e.stack.kafka import KafkaBroker, KafkaClusterServers, broker_ports
from e2e.stack.ports import Ports
from e2e.stack.server import Server
from e2e.stack.spec import HOST, StackSpec
from e2e.stack.stage import Stage
from e2e.stack.zookeeper import ZooKeeperServer


class Surroundings(Stage):
    """The Kafka clusters of a `spec`, named a, b ..., and one ZooKeeper, listening at `host`.

    A context manager: nothing outlives it.
    """

    def __init__(self, folder: Path, spec: StackSpec | None = None, *, host: str = HOST) -> None:
        self.folder = folder.absolute()
        self.spec = spec or StackSpec()
        self._ports = Ports()
        self.zookeeper = ZooKeeperServer(
            "zookeeper", self.folder / "zookeeper", port=self._ports["zookeeper"], dies_with_parent=True
        )
        self.kafka = {name: self._kafka(name) for name in self.spec.cluster_names}
        every = [broker for cluster in self.kafka.values() for broker in cluster.brokers]
        self.zookeeper.host = host
        for broker in every:
            broker.host = host
        self.servers: list[Server] = [self.zookeeper, *every]

    def start(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        with ThreadPoolExecutor(len(self.servers)) as pool:
            for future in [pool.submit(server.start) for server in self.servers]:
                future.result()

    def close(self) -> None:
        for server in self.servers:
            server.kill()
        self._ports.release()

    def _kafka(self, cluster: str) -> KafkaClusterServers:
        names = [f"kafka-{cluster}-{node}" for node in range(1, self.spec.brokers + 1)]
        peers = [broker_ports(self._ports, name) for name in names]
        brokers = [
            KafkaBroker(name, self.folder / name, spec=self.spec, node=node, peers=peers, dies_with_parent=True)
            for node, name in enumerate(names, start=1)
        ]
        return KafkaClusterServers(cluster, brokers)
