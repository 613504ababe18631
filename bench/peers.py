"""The contestants of `exactly_once_vs_peers`: each loads a topic, is killed at its worst point, and is started again.

The worst point of all of them is the same: rows are inserted, and nothing records it yet.
"""

from __future__ import annotations

import sys
import threading
from abc import ABC, abstractmethod
from contextlib import ExitStack
from typing import Self

from clickhouse_driver import Client
from confluent_kafka import Consumer, TopicPartition

from bench import dataset
from bench.dataset import Dataset
from bench.loaders import KafkaEngine, Program
from bench.testbed import PARTITIONS, QUORUM, Testbed
from blockhouse.config.endpoints import ZooKeeper
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from e2e.pipeline import AggregatorProcess, Pipeline, PipelineSpec
from e2e.stack.process import wait_until
from e2e.stack.server import StackError

STRIKE_TIMEOUT = 60.0
INSERT_TIMEOUT = 10.0
START_TIMEOUT = 300.0
_STORED_OFFSET = -1000
"""librdkafka's name for "where the group has committed"."""
_RESTART = 0.5


class Peer(ABC):
    """One run of one contestant into one table. A context manager; it starts again what died."""

    def __init__(self, bed: Testbed, data: Dataset, table: str, topic: str) -> None:
        self.bed = bed
        self.data = data
        self.table = table
        self.topic = topic
        self._exits = ExitStack()

    @abstractmethod
    def start(self) -> None:
        """Returns when it would load what comes."""

    @abstractmethod
    def kill_after_insert(self) -> bool:
        """Kill it when rows are inserted and before it has recorded it anywhere, and start it again. False when nothing
        more was inserted, so that there was no such moment."""

    def messages(self) -> list[bytes]:
        """What is produced for it: the same rows for every contestant."""
        return list(self.data.messages())

    def working(self) -> bool:
        """It runs, after all that was done to it: what is not loaded yet will be loaded."""
        return True

    def wait_for_insert(self) -> None:
        """Return while an insert into the table runs on some replica, or after a while without any."""
        sql = f"SELECT count() FROM system.processes WHERE query LIKE 'INSERT INTO%{self.table}%'"
        servers = list(self.bed.stack.clickhouse.values())
        clients = [self._exits.enter_context(Client(server.host, server.port)) for server in servers]
        wait_until(lambda: any(c.execute(sql)[0][0] for c in clients), timeout=INSERT_TIMEOUT, interval=0.001)

    def __enter__(self) -> Self:
        self.bed.create_table(self.table)
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()


class Loop(Peer):
    """`bench.plain_loop`, a process per partition, started again whenever it ends."""

    def start(self) -> None:
        self._die = threading.Event()
        self._died = threading.Event()
        self._over = threading.Event()
        self._ready = threading.Barrier(PARTITIONS + 1)
        self._programs: dict[int, Program] = {}
        for partition in range(PARTITIONS):
            thread = threading.Thread(target=self._supervise, args=(partition,), daemon=True)
            thread.start()
            self._exits.callback(thread.join)
        self._exits.callback(self._over.set)
        self._ready.wait(START_TIMEOUT)

    def kill_after_insert(self) -> bool:
        """Both processes die between their next insert and its commit."""
        self._died.clear()
        self._die.set()
        died = self._died.wait(STRIKE_TIMEOUT)
        self._die.clear()
        return died

    def working(self) -> bool:
        return all(program.ready for program in self._programs.values())

    def _supervise(self, partition: int) -> None:
        host, port = self.bed.first_replica
        lock = str(self.bed.stack.folder / "loop.lock")
        arguments = [self.bed.bootstrap, self.topic, str(partition), str(_STORED_OFFSET)]
        arguments += [host, str(port), self.table, str(QUORUM), lock]
        first = True
        while not self._over.is_set():
            program = self._programs[partition] = Program([sys.executable, "-m", "bench.plain_loop", *arguments])
            try:
                if first:
                    program.wait_ready()
                    self._ready.wait()
                    first = False
                while program.running and not self._over.wait(0.02):
                    if self._die.is_set():
                        program.die_before_commit()
                if program.died_before_commit:
                    self._died.set()
            finally:
                program.kill()
            self._over.wait(_RESTART)


class Engine(Peer):
    """A Kafka table and a materialized view on one replica; its server is what is killed."""

    def start(self) -> None:
        self._loader = KafkaEngine(self.bed, self.data, self.table)
        self._loader.attach(self.topic)
        self._loader.begin()
        self._exits.callback(self._loader.detach)
        host, port = self.bed.first_replica
        self._client = self._exits.enter_context(Client(host, port))
        config = {"bootstrap.servers": self.bed.bootstrap, "group.id": f"group-{self.topic}", "log_level": 0}
        self._group = Consumer(config)  # it only asks, and never joins
        self._exits.callback(self._group.close)

    def messages(self) -> list[bytes]:
        return list(self.data.json_messages())

    def kill_after_insert(self) -> bool:
        """The server dies the moment one of the two is done: rows are to be seen, or its offsets are committed."""
        server = self.bed.stack.clickhouse[1, 1]
        rows, offsets = self._rows(), self._committed()
        done = lambda: self._rows() > rows or self._committed() > offsets  # noqa: E731
        if not wait_until(done, timeout=STRIKE_TIMEOUT, interval=0.001):
            return False
        server.kill()
        server.start()
        wait_until(lambda: not server.unready_tables(), timeout=60)
        return True

    def _rows(self) -> int:
        return int(self._client.execute(f"SELECT count() FROM {self.table}")[0][0])

    def _committed(self) -> int:
        partitions = [TopicPartition(self.topic, partition) for partition in range(PARTITIONS)]
        return sum(max(0, found.offset) for found in self._group.committed(partitions, timeout=10))


class Blockhouse(Peer):
    """An aggregator per replica, started again whenever it ends."""

    def start(self) -> None:
        settings = {"faults": {"enabled": True}, "quorum": {"timeout": "6s"}, "handoverAfter": "5s"}
        name = self.table.replace("_", "-")
        spec = PipelineSpec(name=name, topic=self.topic, partitions=PARTITIONS, quorum=QUORUM, overrides=settings)
        self._pipeline = Pipeline(self.bed.stack, self.bed.stack.folder / f"pipeline-{name}", spec)
        session = Session(ZooKeeper(servers=self.bed.stack.zookeeper.connect, root=self._pipeline.root))
        with session:
            schemas, full = SchemaStore(session), f"default.{self.table}"
            revision = dataset.history(full).current
            assert revision is not None
            schemas.ensure_id(full)
            schemas.append(full, 0, revision)
        self._exits.enter_context(self._pipeline)
        self._over = threading.Event()
        self._pipeline.start()
        thread = threading.Thread(target=self._supervise, daemon=True)
        thread.start()
        self._exits.callback(thread.join)
        self._exits.callback(self._over.set)

    def kill_after_insert(self) -> bool:
        """Its own fault point (docs/faults.md) strikes in an aggregator that owns streams."""
        found: list[AggregatorProcess] = []

        def working() -> bool:
            found[:] = [a for a in self._pipeline.aggregators.values() if a.alive and a.answers() and a.streams()]
            return bool(found)

        if not wait_until(working, timeout=STRIKE_TIMEOUT):
            raise StackError("no aggregator owns a stream")
        victim = found[0]
        life = victim.pid
        victim.arm_fault("after-insert", action="kill-aggregator")
        return wait_until(lambda: victim.pid != life, timeout=STRIKE_TIMEOUT)

    def working(self) -> bool:
        return all(aggregator.alive and aggregator.answers() for aggregator in self._pipeline.aggregators.values())

    def _supervise(self) -> None:
        while not self._over.wait(_RESTART):
            for aggregator in self._pipeline.aggregators.values():
                if not aggregator.alive:
                    aggregator.start(wait=False)


PEERS: dict[str, tuple[str, type[Peer]]] = {
    "blockhouse": ("Blockhouse, quorum", Blockhouse),
    "loop": ("plain loop, quorum, commit after insert", Loop),
    "engine": ("Kafka engine 18.16", Engine),
}
