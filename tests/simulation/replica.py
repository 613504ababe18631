"""One replica: the product's `Aggregator` in a process that can die, its clients simulated."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import BlockhouseError
from blockhouse.schema.model import TOPIC_COLUMN, Column, Revision, TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator import app
from blockhouse_aggregator.gate.messages import Grant
from tests.simulation.clickhouse import Shard
from tests.simulation.clock import PROCESS, START, Process
from tests.simulation.kafka import Cluster
from tests.simulation.logs import StreamLog
from tests.simulation.member import SimMember
from tests.simulation.server import Server
from tests.simulation.worker import GateSession, Worker
from tests.simulation.world import World
from tests.simulation.zookeeper import Ensemble, SimLocks, ZkSession

if TYPE_CHECKING:
    from tests.simulation.oracle import Oracle


def names_of(world: World) -> dict[str, int]:
    """Tables by name; the ids of the schema history are one more than the numbers."""
    return {f"default.t{number}": number for number in range(world.setting.tables)}


def histories(world: World) -> Mapping[str, TableHistory]:
    id_, topic = Column(name="id", type="UInt64", field=1), Column(name=TOPIC_COLUMN, type="String", field=2)
    revision = Revision(number=1, columns=(id_, topic))
    return {
        name: TableHistory(id=number + 1, name=name, revisions=(revision,)) for name, number in names_of(world).items()
    }


class Node:
    """A replica's place: it outlives its processes. `start`, `kill` and `freeze` are about the aggregator."""

    def __init__(
        self, world: World, number: int, zone: int, *, shard: Shard, clusters: Mapping[str, Cluster],
        ensemble: Ensemble, oracle: Oracle,
    ) -> None:  # fmt: skip
        self.world = world
        self.number = number
        self.zone = zone
        self.name = f"r{number}"
        self.shard = shard
        self.server: Server = shard.servers[number]
        self.clusters = clusters
        self.ensemble = ensemble
        self.oracle = oracle
        self.numbers = names_of(world)
        self.histories = histories(world)
        self.config = config_of(world, self.name, clusters)
        self.skew = world.random.uniform(-4.0, 4.0)
        self.behind = 0.0
        """Seconds that its clock has missed since it was last set."""
        self.suspended_at: float | None = None
        self.incarnation = 0
        self.hiccup_until = 0.0
        """Until then what it asks of ZooKeeper is not answered."""
        self.workers: dict[str, Worker] = {}
        self.driver = self.threads = Process(f"{self.name}.0")
        self.driver.alive = False
        self.aggregator: Any = None
        self.members: list[SimMember] = []
        self.session: ZkSession
        self.locks: SimLocks
        self.shard_port: Any = None
        """The `ports.Shard` of the present process, set by it."""

    # --- life -----------------------------------------------------------------------------------------------

    def start(self) -> None:
        if self.driver.alive:
            return
        self.incarnation += 1
        self.driver = Process(f"{self.name}.{self.incarnation}")
        self.threads = Process(f"{self.name}.{self.incarnation} threads")
        self.members = []
        self.world.narrate(self.driver.name, "starts")
        self.world.loop.spawn(self._run(), self.driver)

    async def _run(self) -> None:
        here[self.driver] = self
        try:
            self.aggregator = app.Aggregator(self.config)
            code = await self.aggregator.run()
        except Exception as error:
            self.world.hurt(f"BUG: {self.driver.name} ends with {error!r}")
            raise
        self.world.narrate(self.driver.name, f"ended with code {code}")
        self.end(hard=False)

    def end(self, *, hard: bool = True) -> None:
        """The driver's process is gone; tasks learn it from their sockets. Its threads' clients are cut off."""
        self.driver.alive = self.threads.alive = False
        for worker in self.workers.values():
            if worker.session is not None:
                worker.session.broken = True
            self.world.loop.call_later(0.001, worker.hear, None, context=worker.process.context)
        if hard:
            self.world.narrate(self.driver.name, "is killed")

    def kill(self) -> None:
        if self.driver.alive:
            self.end()

    def kill_worker(self, worker: Worker) -> None:
        """Its socket breaks, and Spark's job fails a moment later."""
        if not worker.process.alive:
            return
        self.world.narrate(worker.process.name, "is killed")
        worker.process.alive = False
        self.workers.pop(worker.process.name, None)
        loop, driver = self.world.loop, worker.driver
        if worker.session is not None and not worker.session.broken:
            loop.call_later(0.001, worker.session.broke, context=driver.context)
        loop.call_later(
            self.world.random.uniform(0.05, 0.5), _fail, worker.job, RuntimeError("worker gone"), context=driver.context
        )

    def freeze(self, *, workers: bool) -> list[Process]:
        frozen = [self.driver, self.threads]
        if workers:
            frozen += [worker.process for worker in self.workers.values()]
        for process in frozen:
            process.frozen = True
        self.world.narrate(self.driver.name, "is frozen" + (" with its workers" if workers else ""))
        return frozen

    # --- what its processes ask -----------------------------------------------------------------------------

    def unix(self) -> float:
        """Its wall clock, which stands still while the machine is suspended."""
        now = self.world.loop.time()
        if self.suspended_at is not None:
            if self.driver.frozen:
                return START + self.suspended_at + self.skew - self.behind
            self.behind, self.suspended_at = self.behind + now - self.suspended_at, None
        return START + now + self.skew - self.behind

    def suspend(self) -> list[Process]:
        """The machine: all that `freeze` does, and its clock."""
        self.suspended_at = self.world.loop.time()
        return self.freeze(workers=True)

    def set_clock(self) -> None:
        """As NTP does a while after the machine has continued."""
        if not self.driver.frozen:
            self.behind, self.suspended_at = 0.0, None

    def log_of(self, stream: StreamId) -> StreamLog:
        return self.clusters[stream.cluster].logs[stream.partition]

    def reads(self, log: StreamLog) -> bool:
        cluster = self.clusters[log.stream.cluster]
        return cluster.up and not cluster.deleted and self.world.linked(self.zone, cluster.zone)

    def stream_number(self, stream: StreamId) -> int:
        return list(self.clusters).index(stream.cluster) * self.world.setting.partitions + stream.partition

    def granted(self, session: GateSession, grant: Grant) -> None:
        self.oracle.grants(self, session, grant)

    def member(self, cluster: str) -> SimMember:
        return next(member for member in self.members if member._cluster.name == cluster)


here: dict[Process, Node] = {}
"""Which node the process under way belongs to: the product's factories take no such argument."""


def current() -> Node:
    process = PROCESS.get()
    assert process is not None
    return here[process]


def config_of(world: World, replica: str, clusters: Mapping[str, Cluster]) -> AggregatorConfig:
    setting = world.setting
    return AggregatorConfig.model_validate(
        {
            "pipeline": "simulated",
            "shard": "01",
            "replica": replica,
            "kafka": {
                "topic": "events",
                "group": "g",
                "clusters": [{"name": name, "bootstrapServers": f"{name}.nowhere:1"} for name in clusters],
                "sessionTimeout": setting.session_timeout,
                "heartbeatInterval": min(1.0, setting.session_timeout / 3),
                "commitTimeout": 2,
                "offsetMetadataMaxUnits": setting.metadata_units,
            },
            "zookeeper": {"servers": "nowhere:1"},
            "quorum": {"timeout": setting.quorum_timeout},
            "blocks": {"maxAge": setting.max_age},
            "windowFlush": 7,
            "handoverAfter": 4,
            "shutdownBudget": 5,
            "spark": {"lease": setting.lease},
        }
    )


def _fail(job: asyncio.Future[Any], error: Exception) -> None:
    with suppress(BlockhouseError):
        if not job.done():
            job.set_exception(error)
