"""The operator is killed before any of its changes, again and again, while it moves a partition of three real brokers.

`bench/throttle.py --operator-seeds 20` does the same with more seeds and larger partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.fleet.kafka_admin import KafkaFleet
from e2e.moves.story import ENDINGS, Story
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from tests.integration.throttled_moves import BROKERS, SMALL_FETCHES, create

pytestmark = [pytest.mark.integration, pytest.mark.long, pytest.mark.timeout(300)]


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KafkaClusterServers]:
    with kafka_cluster("kills", tmp_path_factory.mktemp("kills"), dict.fromkeys(BROKERS, SMALL_FETCHES)) as up:
        yield up


@pytest.fixture
def fleet(kafka: KafkaClusterServers) -> Iterator[KafkaFleet]:
    with KafkaFleet(KafkaCluster(name="kills", bootstrap_servers=kafka.bootstrap)) as fleet:
        yield fleet


@pytest.mark.parametrize("seed", range(len(ENDINGS)))
def test_an_operator_that_is_killed_anywhere_leaves_a_throttled_move_and_the_next_ends_it(
    kafka: KafkaClusterServers, fleet: KafkaFleet, tmp_path: Path, seed: int
) -> None:
    (key,) = create(kafka, fleet, f"killed-{seed}", 30)
    story = Story(kafka.bootstrap, fleet, tmp_path / "operator", key, seed)
    story.run()
    assert len(story.deaths) >= 3, story.deaths
