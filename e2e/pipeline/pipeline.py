"""Topic, tables and aggregators of one shard on a running stack."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from blockhouse.config.endpoints import ClickHouse, KafkaCluster
from blockhouse.contract.aggregator import Phase
from blockhouse.errors import Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.audit import AuditSpec
from blockhouse_aggregator.kafka.facts import ClusterFacts
from e2e.pipeline.aggregator import AggregatorProcess
from e2e.stack import Stack
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from e2e.stack.server import StackError

TEST_SESSION_TIMEOUT = "6s"


@dataclass(frozen=True)
class PipelineSpec:
    """`overrides` are merged over the generated configuration of every aggregator, section by section; `aggregators`
    is how many of them there are (by default one per replica of the shard), `clusters` of how many Kafka clusters they
    load the topic (by default of all)."""

    name: str = "demo"
    shard: int = 1
    topic: str = "events-01"
    partitions: int = 2
    quorum: int = 2
    aggregators: int | None = None
    clusters: int | None = None
    overrides: Mapping[str, Any] = field(default_factory=dict)


class Pipeline:
    """Aggregators r1..rN, one per ClickHouse replica of the shard. A context manager: none outlives it.

    Pipelines of one name are shards of one, if each has a topic of its own.
    """

    def __init__(self, stack: Stack, folder: Path, spec: PipelineSpec) -> None:
        self.stack = stack
        self.folder = folder
        self.spec = spec
        self.kafka = dict(islice(stack.kafka.items(), spec.clusters))
        self.aggregators: dict[str, AggregatorProcess] = {}
        self._ports = Ports()
        for (shard, number), server in sorted(stack.clickhouse.items()):
            if shard == spec.shard and number <= (spec.aggregators or number):
                config = merged(self.config(server.replica, number), spec.overrides)
                pod = server.replica if shard == 1 else f"s{shard}-{server.replica}"
                name = f"aggregator-{pod}"
                self.aggregators[server.replica] = AggregatorProcess(name, folder / name, config)

    def config(self, replica: str, number: int) -> dict[str, Any]:
        """The YAML configuration of one aggregator, as docs/configuration.md describes it."""
        spec, stack = self.spec, self.stack
        clickhouse = stack.clickhouse[spec.shard, number]
        return {
            "pipeline": spec.name,
            "shard": clickhouse.shard,
            "replica": replica,
            "kafka": {
                "topic": spec.topic,
                "group": f"{spec.name}-{clickhouse.shard}",
                "clusters": [{"name": k.name, "bootstrapServers": k.bootstrap} for k in self.kafka.values()],
                "sessionTimeout": TEST_SESSION_TIMEOUT,
            },
            "clickhouse": {"host": clickhouse.host, "port": clickhouse.port},
            "zookeeper": {
                "servers": stack.zookeeper.connect,
                "root": self.root,
                "sessionTimeoutSeconds": 6,
            },
            "quorum": {"replicas": spec.quorum, "timeout": "10s"},
            "admin": {"port": self._ports[f"admin.{replica}"]},
        }

    @property
    def root(self) -> str:
        """The pipeline's path in ZooKeeper."""
        return f"/blockhouse/{self.spec.name}"

    def port(self, purpose: str) -> int:
        """A port for something beside the aggregators, kept as long as the pipeline."""
        return self._ports[purpose]

    def create_topic(self, config: Mapping[str, str] | None = None) -> None:
        for cluster in self.kafka.values():
            cluster.create_topic(self.spec.topic, partitions=self.spec.partitions, config=config)

    def start(self, *, wait: bool = True) -> None:
        """Start all aggregators at once, then wait until each is ready."""
        for aggregator in self.aggregators.values():
            aggregator.start(wait=False)
        if wait:
            for aggregator in self.aggregators.values():
                aggregator.wait_ready()

    def heal(self) -> None:
        """Start or thaw again every aggregator that does not run."""
        for aggregator in self.aggregators.values():
            if aggregator.frozen or not aggregator.alive:
                aggregator.start(wait=False)
        for aggregator in self.aggregators.values():
            aggregator.wait_ready()

    def owner(self, cluster: str, partition: int) -> AggregatorProcess | None:
        """The aggregator that has taken the stream over, by its own report; None while none has."""
        name = str(StreamId(cluster, self.spec.topic, partition))
        for aggregator in self.aggregators.values():
            if aggregator.alive and not aggregator.frozen:
                for stream in aggregator.streams():
                    if stream.stream == name and stream.state in (Phase.REPLAY, Phase.CONSUME):
                        return aggregator
        return None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for aggregator in self.aggregators.values():
            aggregator.kill()
        self._ports.release()

    def wait_for(self, what: str, condition: Callable[[], bool], timeout: float) -> None:
        """Wait for a condition on the aggregators; StackError naming `what` and every stream's state when in vain."""
        if not wait_until(condition, timeout=timeout, interval=0.2, what=what):
            states = {
                name: [(s.stream, str(s.state), s.lag, s.in_flight) for s in aggregator.streams()]
                for name, aggregator in self.aggregators.items()
            }
            raise StackError(f"{what}: not within {timeout:g} s; {states}")

    @property
    def clusters(self) -> tuple[KafkaCluster, ...]:
        """The Kafka clusters that it loads, as clients are configured with them."""
        return tuple(KafkaCluster(name=k.name, bootstrap_servers=k.bootstrap) for k in self.kafka.values())

    def audit_spec(self, manifest: Path, wait: float) -> AuditSpec:
        """An audit of all that is in the topic, and of `manifest`, on every replica of the shard; `wait` in seconds."""
        servers = [server for (shard, _), server in self.stack.clickhouse.items() if shard == self.spec.shard]
        return AuditSpec(
            clusters=self.clusters,
            topic=self.spec.topic,
            replicas=tuple(ClickHouse(host=s.host, port=s.port) for s in servers),
            dead_letter_topic=f"{self.spec.topic}.dead-letters",
            manifest=manifest,
            wait=wait,
        )

    def log_ends(self) -> dict[str, int]:
        """The end of every stream's log, asked of the brokers."""
        ends = {}
        for cluster in self.clusters:
            facts = ClusterFacts(cluster)
            for partition in range(self.spec.partitions):
                stream = StreamId(cluster.name, self.spec.topic, partition)
                ends[str(stream)] = facts.bounds(stream).end
        return ends

    def quiet(self) -> bool:
        """Every stream is owned, has read to its end and has nothing in flight or lagging."""
        try:
            ends = self.log_ends()
        except Retryable:
            return False  # a broker that has just come back
        streams = {s.stream: s for aggregator in self.aggregators.values() for s in aggregator.streams()}
        return all(
            (s := streams.get(stream)) is not None
            and s.state is Phase.CONSUME
            and (s.stored_below or 0) >= end
            and not s.blocks
            and not s.lagging_tables
            for stream, end in ends.items()
        )


def merged(base: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    """`base` with `over` laid on it, mapping by mapping."""
    result = dict(base)
    for key, value in over.items():
        inner = result.get(key)
        result[key] = merged(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return result
