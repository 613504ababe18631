"""Real aggregators on the shared stack, with time-outs short enough for faults to be found out within seconds."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka.admin import (  # type: ignore[attr-defined] # re-exported, undeclared
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)

from blockhouse.contract.aggregator import Phase
from e2e.pipeline import AggregatorProcess, Pipeline, PipelineSpec
from e2e.pipeline.pipeline import merged
from e2e.stack import Stack
from e2e.stack.process import wait_until
from e2e.stack.tables import zookeeper_path
from tests.integration.runtime_feed import Feed

SETTINGS: Mapping[str, Any] = {
    "quorum": {"timeout": "4s"},
    "blocks": {"maxAge": "200ms"},
    "kafka": {"commitTimeout": "5s"},
    "handoverAfter": "5s",
    "shutdownBudget": "10s",
}


NOTHING_MOVES = {
    "kafka": {"sessionTimeout": "120s"},
    "handoverAfter": "10m",
    "quorum": {"timeout": "4s"},
    "spark": {"lease": "20s"},
}
"""Settings with which no stream moves to another aggregator while a fault lasts."""
NEIGHBOUR = ("a", 1)
NEIGHBOUR_SECONDS = float(os.environ.get("NEIGHBOUR_SECONDS", "60"))
"""Seconds until a neighbour's rows have to be stored; 5 on a machine that does nothing else."""


@dataclass(frozen=True)
class Loading:
    """A running pipeline, its stack and what is produced to it."""

    stack: Stack
    pipeline: Pipeline
    feed: Feed

    @property
    def aggregators(self) -> list[AggregatorProcess]:
        return list(self.pipeline.aggregators.values())

    def stream(self, cluster: str, partition: int) -> str:
        return f"{cluster}/{self.pipeline.spec.topic}/{partition}"

    def owner(self, cluster: str, partition: int, *, other_than: AggregatorProcess | None = None) -> AggregatorProcess:
        """The stream's owner, once there is one."""

        def owned() -> bool:
            found = self.pipeline.owner(cluster, partition)
            return found is not None and found is not other_than

        self.wait(f"owner of {self.stream(cluster, partition)}", owned)
        found = self.pipeline.owner(cluster, partition)
        assert found is not None
        return found

    def peer(self, aggregator: AggregatorProcess) -> AggregatorProcess:
        return next(other for other in self.aggregators if other is not aggregator)

    def balanced(self) -> bool:
        """Every aggregator consumes its share of the streams of each cluster: nothing moves by itself any more."""
        consumed = [{s.stream for s in a.streams() if s.state is Phase.CONSUME} for a in self.aggregators]
        if len(set().union(*consumed)) != len(self.feed.streams):
            return False
        shares = [[sum(s.startswith(f"{c}/") for s in streams) for streams in consumed] for c in self.pipeline.kafka]
        return all(max(share) - min(share) <= 1 for share in shares)

    def wait(self, what: str, condition: Callable[[], bool], timeout: float = 150) -> None:
        self.pipeline.wait_for(what, condition, timeout)

    def heal(self) -> None:
        """Start again what was killed."""
        self.pipeline.heal()

    def settle(self, *tables: str, timeout: float = 180) -> None:
        """Until everything is read, nothing is in flight and every replica is exact."""
        self.wait("everything loaded", self.pipeline.quiet, timeout)
        self.feed.wait_exact(*tables)

    def set_topic_config(self, topic: str, settings: Mapping[str, str], *, cluster: str = "a") -> None:
        """Change settings of a topic as an administrator does."""
        admin = AdminClient({"bootstrap.servers": self.stack.kafka[cluster].bootstrap, "log_level": 0})
        changes = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in settings.items()]
        resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=changes)
        for done in admin.incremental_alter_configs([resource]).values():
            done.result(60)

    # --- faults of ClickHouse -------------------------------------------------------------------------------

    @contextmanager
    def fetches_stopped(self, table: str) -> Iterator[None]:
        """No replica fetches parts of the table, so that every quorum insert hangs until its time-out."""
        self._everywhere(f"SYSTEM STOP FETCHES {table}")
        try:
            yield
        finally:
            self._everywhere(f"SYSTEM START FETCHES {table}")

    def _everywhere(self, sql: str) -> None:
        for server in self.stack.clickhouse.values():
            if server.alive and not server.frozen:
                server.execute(sql)

    def written_without_quorum(self, table: str) -> bool:
        """A part of the table is written by its replica and waits for the other one."""
        path = zookeeper_path("01", table.partition(".")[2]) + "/quorum"
        rows = self.stack.clickhouse[1, 1].execute(f"SELECT name FROM system.zookeeper WHERE path = '{path}'")
        return ("status",) in rows


@contextmanager
def loading(
    stack: Stack,
    folder: Path,
    name: str,
    *,
    partitions: int = 2,
    aggregators: int | None = None,
    clusters: int | None = None,
    settings: Mapping[str, Any] | None = None,
    before: Callable[[Loading], None] = lambda _: None,
) -> Iterator[Loading]:
    """A pipeline `name` with a topic of its own in its clusters; ends with every aggregator dead.

    `before` is called when the topic exists and before anything loads it.
    """
    spec = PipelineSpec(
        name=name,
        topic=f"{name}-events",
        partitions=partitions,
        aggregators=aggregators,
        clusters=clusters,
        overrides=merged(SETTINGS, settings or {}),
    )
    with Pipeline(stack, folder, spec) as pipeline:
        pipeline.create_topic()
        with Feed(pipeline) as feed:
            found = Loading(stack, pipeline, feed)
            before(found)
            pipeline.start()
            yield found


@contextmanager
def healed(loading: Loading) -> Iterator[Loading]:
    """For one test: what it killed or froze runs again afterwards, servers first."""
    try:
        yield loading
    finally:
        loading.stack.heal()
        loading.pipeline.heal()


@contextmanager
def healed_and_balanced(loading: Loading) -> Iterator[Loading]:
    """The same for a test about owners: streams that were taken over in the test before have moved back when it
    begins, and do not move in the midst of it."""
    loading.wait("every stream with its owner", loading.balanced)
    with healed(loading) as found:
        yield found


def eventually(condition: Callable[[], bool], timeout: float = 60) -> bool:
    return wait_until(condition, timeout=timeout, interval=0.2)


def neighbour_flows(pipeline: Loading, table: str, to: tuple[str, int] = NEIGHBOUR) -> None:
    """Messages of another partition are stored within seconds, whatever this one does."""
    sent = time.monotonic()
    pipeline.feed.send(table, 3, to=[to])
    places = [place for place in pipeline.feed.places(table) if place[:2] == to]
    stored = f"SELECT count() FROM {table} WHERE _kafka_partition = {to[1]}"
    server = pipeline.stack.clickhouse[1, 1]
    pipeline.wait("the neighbour's rows", lambda: server.execute(stored) == [(3 * len(places),)])
    assert time.monotonic() - sent < NEIGHBOUR_SECONDS
