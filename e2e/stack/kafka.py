"""Kafka clusters of a stack: real KRaft brokers from the jars `make setup` put into the cache."""

from __future__ import annotations

import base64
import os
import signal
import socket
import uuid
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from e2e.stack import process
from e2e.stack.ports import Ports
from e2e.stack.server import QUICK_JIT, START_TIMEOUT, Server, StackError, render
from e2e.stack.spec import HOST, StackSpec

KAFKA_VERSION = "4.3.1"
_CONTROLLERS = 3


def jars() -> Path:
    """The folder with the broker's jars. Raises StackError when `make setup` has not completed it."""
    cache = Path(os.environ.get("BLOCKHOUSE_CACHE") or Path.home() / ".cache" / "blockhouse")
    folder = cache / f"kafka-{KAFKA_VERSION}"
    if not (folder / ".complete").exists():
        raise StackError(f"cannot start Kafka: no complete set of jars in {folder}, run `make setup`")
    return folder


@dataclass(frozen=True)
class BrokerPorts:
    client: int
    controller: int
    sasl: int


class KafkaBroker(Server):
    """Broker `node` (from 1) of one cluster; `peers` are the ports of all its brokers, this one included."""

    def __init__(
        self,
        name: str,
        folder: Path,
        *,
        spec: StackSpec,
        node: int,
        peers: Sequence[BrokerPorts],
        dies_with_parent: bool,
    ) -> None:
        super().__init__(name, folder, dies_with_parent=dies_with_parent)
        self.host = HOST
        self.node = node
        self.port = peers[node - 1].client
        self.sasl_port = peers[node - 1].sasl if spec.kafka_scram else None
        self._spec = spec
        self._peers = peers

    @property
    def bootstrap(self) -> str:
        return f"{self.host}:{self.port}"

    def prepare(self) -> list[str]:
        config = self.folder / "server.properties"
        config.write_text(self.render_config())
        log4j = self.folder / "log4j2.yaml"
        log4j.write_text(render("log4j2.yaml"))
        java = ["java", "-XX:+UseSerialGC", f"-Dlog4j2.configurationFile={log4j}", "-cp", f"{jars()}/*"]
        if not (self.folder / "data" / "meta.properties").exists():
            self._format(java, config)
        jit = () if self._spec.kafka_full_jit else (QUICK_JIT,)
        return [*java, *jit, "-Xms64m", f"-Xmx{self._spec.kafka_heap}", "kafka.Kafka", str(config)]

    def answers(self) -> bool:
        """A broker opens its listener to clients last; it must also know itself as a member of the cluster."""
        try:
            socket.create_connection((self.host, self.port), timeout=1).close()
            admin = AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})
            return self.node in admin.list_topics(timeout=2).brokers
        except (OSError, KafkaException):
            return False

    def render_config(self) -> str:
        """Content of server.properties; later lines win, so the spec's own properties come last."""
        brokers = len(self._peers)
        controllers = self._peers[: _CONTROLLERS if brokers >= _CONTROLLERS else 1]
        listeners = {"PLAINTEXT": self.port}
        if self.sasl_port is not None:
            listeners["SASL"] = self.sasl_port
        own = dict(listeners)
        if self.node <= len(controllers):
            own["CONTROLLER"] = self._peers[self.node - 1].controller
        config = render(
            "server.properties",
            roles="broker,controller" if "CONTROLLER" in own else "broker",
            node=self.node,
            voters=",".join(f"{i}@{self.host}:{p.controller}" for i, p in enumerate(controllers, start=1)),
            listeners=_listeners(self.host, own),
            advertised=_listeners(self.host, listeners),
            data=self.folder / "data",
            replication=min(3, brokers),
            min_insync=2 if brokers >= 3 else 1,
        )
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        extra = {f"listener.name.sasl.scram-sha-{n}.sasl.jaas.config": scram for n in (256, 512)}
        if self._spec.kafka_tls:
            extra.update(_tls_properties(Path(self._spec.kafka_tls)))
        extra.update(self._spec.kafka_properties)
        return config + "".join(f"{key}={value}\n" for key, value in extra.items())

    def _format(self, java: Sequence[str], config: Path) -> None:
        users = [
            argument
            for user, password in self._spec.kafka_scram.items()
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for argument in ("--add-scram", f"{mechanism}=[name={user},password={password}]")
        ]
        command = [*java, "-Xmx128m", QUICK_JIT, "kafka.tools.StorageTool", "format"]
        command += ["-t", _cluster_id(self.folder.parent, self.name), "-c", str(config), *users]
        tool = self._spawn(command, self.log)
        if not process.wait_dead(tool, START_TIMEOUT):
            process.signal_session(tool, signal.SIGKILL)
        if tool.wait():
            raise StackError(f"the storage of {self.name} could not be formatted{self._last_words()}")


class KafkaClusterServers:
    """One independent cluster and its brokers."""

    def __init__(self, name: str, brokers: Sequence[KafkaBroker]) -> None:
        self.name = name
        self.brokers = list(brokers)

    @property
    def bootstrap(self) -> str:
        """Plain listeners of all brokers, comma separated."""
        return ",".join(broker.bootstrap for broker in self.brokers)

    @property
    def sasl_bootstrap(self) -> str:
        """SASL listeners of all brokers, with TLS by `kafka_tls`; empty unless the spec has `kafka_scram`."""
        return ",".join(f"{b.host}:{b.sasl_port}" for b in self.brokers if b.sasl_port is not None)

    def create_topic(self, name: str, *, partitions: int, config: Mapping[str, str] | None = None) -> None:
        """Creates `name`, replicated by the brokers' defaults; returns when every running broker answers for all of it.

        Raises KafkaException when the cluster refuses, StackError when a broker does not learn of it.
        """
        admin = AdminClient({"bootstrap.servers": self.bootstrap})
        topic = NewTopic(name, num_partitions=partitions, config=dict(config or {}))
        admin.create_topics([topic], operation_timeout=10)[name].result(timeout=60)
        for broker in self.brokers:
            if broker.alive and not broker.frozen:
                asked = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
                if not process.wait_until(partial(_has, asked, name, partitions), timeout=30):
                    raise StackError(f"{broker.name} has not learned of topic {name} within 30 s")


def _has(admin: AdminClient, topic: str, partitions: int) -> bool:
    """Whether the broker that is asked knows all partitions of the topic, and a leader of each."""
    found = admin.list_topics(topic, timeout=60).topics[topic].partitions
    return len(found) == partitions and all(partition.leader >= 0 for partition in found.values())


@contextmanager
def kafka_cluster(
    name: str, folder: Path, properties: Mapping[int, Mapping[str, str]], spec: StackSpec | None = None
) -> Iterator[KafkaClusterServers]:
    """One cluster without the rest of a stack, up while the context lasts: a broker for each node number from 1, with
    properties of its own. Its data is in `folder` and stays there.
    """
    ports, base = Ports(), spec or StackSpec()
    names = {node: f"kafka-{name}-{node}" for node in sorted(properties)}
    peers = [broker_ports(ports, broker) for broker in names.values()]
    brokers = [
        KafkaBroker(
            broker,
            folder / broker,
            spec=replace(base, kafka_properties={**base.kafka_properties, **properties[node]}),
            node=node,
            peers=peers,
            dies_with_parent=True,
        )
        for node, broker in names.items()
    ]
    try:
        with ThreadPoolExecutor(len(brokers)) as pool:
            list(pool.map(KafkaBroker.start, brokers))
        yield KafkaClusterServers(name, brokers)
    finally:
        for running in brokers:
            running.kill()
        ports.release()


def broker_ports(ports: Ports, name: str) -> BrokerPorts:
    return BrokerPorts(ports[f"{name}.client"], ports[f"{name}.controller"], ports[f"{name}.sasl"])


def _listeners(host: str, ports: Mapping[str, int]) -> str:
    return ",".join(f"{name}://{host}:{port}" for name, port in ports.items())


def _tls_properties(folder: Path) -> dict[str, str]:
    return {
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_SSL",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(folder / "server.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(folder / "ca.crt"),
        "listener.name.sasl.ssl.client.auth": "required",
    }


def _cluster_id(folder: Path, broker: str) -> str:
    """The same for all brokers of a cluster (kafka-a-1, kafka-a-2), different in any other cluster or stack."""
    cluster = uuid.uuid5(uuid.NAMESPACE_URL, f"{folder}/{broker.rpartition('-')[0]}")
    # The tool would take a leading "-" for an option.
    return "A" + base64.urlsafe_b64encode(cluster.bytes).decode().rstrip("=")[1:]
