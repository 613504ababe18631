"""Real aggregators on the shared stack, with time-outs short enough for faults to be found out within seconds."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
        consumed = [{s["stream"] for s in a.streams() if s["state"] == "CONSUME"} for a in self.aggregators]
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
