"""Real servers for the integration tests: one stack for all of them, names and objects of its own for each."""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest

from e2e.kit.mirror import MirrorProcess
from e2e.stack import Stack, StackSpec
from e2e.stack.tables import create_replicated_table, drop_replicated_table
from tests.integration.mirror_feed import MirrorFactory

_numbers = itertools.count(1)

TopicFactory = Callable[..., str]
TableFactory = Callable[..., str]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """With LONG_TESTS=0.25 a quarter of the files of long tests, at random, the same for a LONG_TESTS_SEED."""
    share, seed = float(os.environ.get("LONG_TESTS") or 1), os.environ.get("LONG_TESTS_SEED", "0")
    left_out = [
        item
        for item in items
        if item.get_closest_marker("long") is not None and Random(f"{seed} {item.path.name}").random() >= share
    ]
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in set(left_out)]


@dataclass(frozen=True)
class Names:
    """Names no other test of this run uses; `unique("x")` makes further ones."""

    stem: str

    @property
    def topic(self) -> str:
        return f"{self.stem}-topic"

    @property
    def group(self) -> str:
        return f"{self.stem}-group"

    @property
    def table(self) -> str:
        return f"{self.stem}_table"

    @property
    def zookeeper_root(self) -> str:
        return f"/test/{self.stem}"

    def unique(self, label: str) -> str:
        """A name of letters, digits and underscores, different at every call."""
        return f"{self.stem}_{label}_{next(_numbers)}"


@pytest.fixture(scope="session")
def running_stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """The servers of the whole run; tests use `stack`."""
    with Stack(tmp_path_factory.mktemp("stack"), StackSpec(kafka_clusters=2, shards=1, replicas=2)) as stack:
        yield stack


@pytest.fixture
def stack(running_stack: Stack) -> Iterator[Stack]:
    """Two Kafka clusters, ZooKeeper, one shard of two replicas. What a test killed or froze runs again after it."""
    yield running_stack
    running_stack.heal()


@pytest.fixture
def names(request: pytest.FixtureRequest) -> Names:
    slug = re.sub(r"[^a-z0-9]+", "_", request.node.name.lower())[:40].strip("_")
    return Names(f"{slug}_{next(_numbers)}")


@pytest.fixture
def topic(stack: Stack, names: Names) -> TopicFactory:
    """topic(partitions=4, name=None, config=None) creates a topic in every Kafka cluster and returns its name."""

    def create(partitions: int = 4, *, name: str | None = None, config: Mapping[str, str] | None = None) -> str:
        name = name or names.unique("topic")
        for cluster in stack.kafka.values():
            cluster.create_topic(name, partitions=partitions, config=config)
        return name

    return create


@pytest.fixture
def table(stack: Stack, names: Names) -> Iterator[TableFactory]:
    """table(columns="id UInt64, text String", ...) creates a replicated table everywhere and returns its name.

    The rows carry provenance columns unless `provenance=False`; `settings` are those of MergeTree. Dropped afterwards.
    """
    created: list[str] = []

    def create(
        columns: str = "id UInt64, text String",
        *,
        name: str | None = None,
        order_by: str = "id",
        partition_by: str = "tuple()",
        provenance: bool = True,
        family: str = "",
        settings: Mapping[str, str | int] | None = None,
    ) -> str:
        name = name or names.unique("table")
        create_replicated_table(
            stack,
            name,
            columns,
            order_by=order_by,
            partition_by=partition_by,
            provenance=provenance,
            family=family,
            settings=settings,
        )
        created.append(name)
        return name

    yield create
    try:
        stack.heal()
    finally:
        for name in created:
            drop_replicated_table(stack, name)


@pytest.fixture
def mirror(stack: Stack, tmp_path: Path, names: Names) -> Iterator[MirrorFactory]:
    """mirror(include, **changes): one from cluster a to b that is not started; killed afterwards."""
    made: list[MirrorProcess] = []

    def make(include: str, **changes: Any) -> MirrorProcess:
        made.append(MirrorProcess(stack.kafka, tmp_path, names.unique("km"), include, **changes))
        return made[-1]

    yield make
    for each in made:
        each.kill()
        print(f"--- {each.log}\n{each.log.read_text()[-4000:] if each.log.exists() else ''}")
