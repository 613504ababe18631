"""What is produced in a run: a steady load of each shard's topic, with a manifest of every message."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Self

from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.produce import LoadSpec, MessagePool
from e2e.chaos.scenario import Scenario
from e2e.chaos.world import LOADED, World
from e2e.kit.load import Load
from e2e.pipeline.schemas import recorded_history

FIRST_MESSAGES = 100
SCHEMA_TIMEOUT = 180.0


class Production:
    """The loads of all shards, begun and ended together. A context manager: at its end nothing is produced any more."""

    def __init__(self, loads: Sequence[Load]) -> None:
        self._loads = loads
        self._exits = ExitStack()

    @property
    def messages(self) -> tuple[int, ...]:
        """How many the brokers have acknowledged so far, by shard."""
        return tuple(load.messages for load in self._loads)

    @property
    def rows(self) -> tuple[int, ...]:
        """Rows in them, by shard."""
        return tuple(load.rows for load in self._loads)

    def send_first(self) -> None:
        """FIRST_MESSAGES to each shard at once; returns when they are acknowledged."""
        for load in self._loads:
            load.send_first(FIRST_MESSAGES)

    def start(self) -> None:
        for load in self._loads:
            load.start()

    def clock(self) -> float:
        """Seconds since the production began."""
        return self._loads[0].clock()

    def wait(self, until: float) -> None:
        """Until the clock reads `until`, or to the end of the load. Raises what made any of them fail."""
        for load in self._loads:
            load.wait(until)

    def stop(self) -> None:
        """Produce no more than is on its way."""
        for load in self._loads:
            load.stop()

    def finish(self, timeout: float) -> int:
        """Wait until all is out; returns how many messages the brokers never acknowledged. Raises as Load does."""
        return sum(load.finish(timeout) for load in self._loads)

    def __enter__(self) -> Self:
        for load in self._loads:
            self._exits.enter_context(load)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
        self._exits.close()


def production_of(scenario: Scenario, world: World, schemas: SchemaStore) -> Production:
    """The load of every shard, once an aggregator has recorded what tables there are; StackError when none does."""
    histories = {table.full_name: recorded_history(schemas, table.full_name, SCHEMA_TIMEOUT) for table in LOADED}
    return Production([_load(scenario, world, shard, histories) for shard in range(1, scenario.shards + 1)])


def manifest(folder: Path, shard: int) -> Path:
    return folder / ("manifest.jsonl" if shard == 1 else f"manifest-s{shard}.jsonl")


def _load(scenario: Scenario, world: World, shard: int, histories: Mapping[str, TableHistory]) -> Load:
    seed = scenario.seed + shard - 1
    spec = LoadSpec(
        {table.full_name: table.share for table in LOADED},
        scenario.messages + FIRST_MESSAGES,
        rate=scenario.rate,
        seed=seed,
    )
    pools = {name: MessagePool(history, seed) for name, history in histories.items()}
    pipeline = world.pipelines[shard - 1]
    return Load(spec, pipeline.clusters, pipeline.spec.topic, pools, manifest(world.folder, shard))
