"""The cleaner takes most of the history away: no alarm for that, what was not seen is counted, and what is wrong across
the gap is still found."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined] # re-exported, undeclared
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    ResourceType,
)

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.metadata.model import Metadata, Window
from blockhouse_aggregator.verifier.offsets.reader import OFFSETS_TOPIC
from blockhouse_aggregator.verifier.past import read_all
from blockhouse_aggregator.verifier.streams import ClusterStreams
from e2e.pipeline import VerifierProcess
from e2e.stack import Stack, StackSpec
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from tests.integration.conftest import Names
from tests.integration.verifier_rogue import Rogue, block, config

pytestmark = pytest.mark.integration
CLEANED = {"segment.ms": "200", "min.cleanable.dirty.ratio": "0.001", "min.compaction.lag.ms": "0"}
COMMITS = 60


@pytest.fixture(scope="module")
def cleaning(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    spec = StackSpec(kafka_clusters=1, replicas=1, kafka_properties={"log.cleaner.backoff.ms": "200"})
    with Stack(tmp_path_factory.mktemp("cleaning"), spec) as stack:
        yield stack


def clean_eagerly(stack: Stack) -> None:
    """Roll a segment of the offsets topic at nearly every append, so that all but the last may be cleaned."""
    admin = AdminClient({"bootstrap.servers": stack.kafka["a"].bootstrap})
    entries = [ConfigEntry(k, v, incremental_operation=AlterConfigOpType.SET) for k, v in CLEANED.items()]
    resource = ConfigResource(ResourceType.TOPIC, OFFSETS_TOPIC, incremental_configs=entries)
    admin.incremental_alter_configs([resource])[resource].result(60)


def commits_left(stack: Stack, rogue: Rogue, group: str) -> int:
    """Commits of the rogue's stream that the offsets topic still has."""
    streams = ClusterStreams("a", [group])
    cluster = KafkaCluster(name="a", bootstrap_servers=stack.kafka["a"].bootstrap)
    for records in read_all(cluster, streams, None):
        for _ in streams.observe(records, 0):
            pass
    return streams.counts["commits"]


def rounds(rogue: Rogue, last: Metadata, count: int) -> Metadata:
    """Legal commits: a block of ten messages of table 1 each."""
    for _ in range(count):
        begin = last.position
        window = replace(last.window, sealed=last.window.sealed + 10)
        tables = (block(1, begin, begin + 9, 10),)
        last = replace(last, seq=last.seq + 1, position=begin + 10, window=window, tables=tables)
        rogue.owner(last)
    return last


def wait_compacted(stack: Stack, rogue: Rogue, names: Names) -> None:
    """Until at least half of the commits are gone. A segment is rolled by an append only: commit the last one again."""

    def compacted() -> bool:
        rogue.commit(*rogue.history[-1])
        return commits_left(stack, rogue, names.group) < COMMITS // 2

    assert wait_until(compacted, timeout=90, interval=0.5), commits_left(stack, rogue, names.group)


def test_compaction_is_no_anomaly_and_hides_none(cleaning: Stack, names: Names, tmp_path: Path) -> None:
    cleaning.kafka["a"].create_topic(names.topic, partitions=1)
    ports = Ports()
    settings = config(cleaning, names, names.topic, ports["verifier"])
    verifier = VerifierProcess("verifier", tmp_path / "verifier", settings)
    with closing(Rogue(cleaning, "a", names.topic, names.group)) as rogue:
        rogue.produce(COMMITS * 10 * 4)
        start = Metadata("r1", 0, 1_000, rogue.topic_id, 0, 0, Window())
        last = rounds(rogue, start, 5)
        clean_eagerly(cleaning)
        try:
            # Given a verifier that has seen the beginning and is gone while most of the history is written and cleaned
            verifier.start()
            seen = verifier.settled()
            assert (seen.verdict, seen.coverage["a"].unseen) == ("clean", 0)
            verifier.stop()
            last = rounds(rogue, last, COMMITS)
            wait_compacted(cleaning, rogue, names)

            # When it comes back
            verifier.start()
            found = verifier.settled()

            # Then it reports what it has not seen, and that the rest is sound
            assert found.verdict == "clean", verifier.anomalies()
            assert found.coverage["a"].unseen > COMMITS // 4, found.coverage
            print(f"of {COMMITS} commits {found.coverage['a'].unseen} were never seen")

            # And one more, across what it did not see, that loads messages a second time
            verifier.stop()
            rounds(rogue, last, COMMITS)
            doubled = rogue.history[-1]
            twice = replace(last, seq=last.seq + COMMITS + 1, tables=(block(1, 20, 29, 10),))
            twice = replace(twice, position=last.position + COMMITS * 10 + 10)
            twice = replace(twice, window=Window(0, twice.position))
            rogue.owner(twice)
            assert doubled != rogue.history[-1]
            wait_compacted(cleaning, rogue, names)
            verifier.start()
            verifier.settled()
            (anomaly,) = verifier.anomalies()
            assert (anomaly.kind, anomaly.table, anomaly.first, anomaly.last) == ("backward", "1", 20, 29)
        finally:
            verifier.kill()
            ports.release()
