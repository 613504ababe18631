"""Rates from two looks: what the formula gives, and that an interval without a rate never gets one."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse.load.model import ProblemKind, Quality, Sample
from blockhouse.load.sampling import START_ROUNDS, PartitionLook, Sampler, Snapshot
from blockhouse.placement.model import TopicPartition

KEY, OTHER = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
MB = 1e6


def look(end: int, *, leader: int = 1, epoch: int = 0, replicas: tuple[int, ...] = (1, 2)) -> PartitionLook:
    return PartitionLook(end, leader, epoch, replicas, replicas)


def snapshot(clock: float, end: int, size: float, *, start: int = 400) -> Snapshot:
    """Partition 0 of clicks, led by broker 1, followed by 2."""
    return Snapshot(
        cluster_id="c",
        at=1_000_000 + clock,
        clock=clock,
        partitions={KEY: look(end)},
        starts={KEY: start},
        sizes={1: {KEY: size}, 2: {KEY: size}},
        sized={1: clock, 2: clock},
        topic_ids={"clicks": "id"},
    )


def sampled(*snapshots: Snapshot) -> Sample:
    sampler = Sampler()
    samples = [sampler.add(found) for found in snapshots]
    assert samples[0] is None
    assert samples[-1] is not None
    return samples[-1]


def test_the_worked_example() -> None:
    """End 1,000 to 1,600 in 60 s, start 400, 120 MB: 10 messages/s of 100 kB."""
    sample = sampled(snapshot(0, 1000, 60 * MB), snapshot(60, 1600, 120 * MB))
    load = sample.partitions[KEY]
    assert (load.messages, load.bytes, load.quality) == (10, pytest.approx(MB), Quality.MEASURED)
    assert (sample.window, sample.at, sample.source, sample.problems) == (60, 1_000_060, "sampled", ())


def test_sizes_that_are_read_late_do_not_raise_the_rate() -> None:
    """1,000 records of 1 kB a second; the sizes come three seconds after the offsets, with what came meanwhile."""

    def late(clock: float) -> Snapshot:
        end = 400 + int(1000 * (clock + 5))
        found = snapshot(clock, end, (end + 3000 - 400) * 1000.0)
        return replace(found, sized={1: clock + 3, 2: clock + 3})

    assert sampled(late(0), late(10)).partitions[KEY].bytes == pytest.approx(MB, rel=0.01)


def test_retention_does_not_fool_the_rate() -> None:
    """The log lost its first half meanwhile: it shrank, though 1,000 records came."""
    sample = sampled(
        snapshot(0, 10_000, 100 * MB, start=0),
        snapshot(10, 11_000, 60 * MB, start=5_000),
    )
    assert sample.partitions[KEY].bytes == pytest.approx(MB)


def test_a_short_log_is_measured_by_its_growth() -> None:
    """Ten old records of 1 kB, ten new ones of 100 kB: the mean record would be half of what comes."""
    sample = sampled(snapshot(0, 410, 0.01 * MB), snapshot(10, 420, 1.01 * MB))
    assert sample.partitions[KEY].bytes == pytest.approx(0.1 * MB)


def test_a_short_log_that_retention_cut_is_estimated_by_its_mean() -> None:
    sample = sampled(snapshot(0, 410, 5 * MB), snapshot(10, 420, 1 * MB, start=410))
    load = sample.partitions[KEY]
    assert (load.bytes, load.quality) == (pytest.approx(0.1 * MB), Quality.ESTIMATED)


def test_a_compacted_log_is_estimated_by_its_growth() -> None:
    """Compaction left 2 MB for 100,000 offsets; 20 records of 50 kB came."""
    odd = frozenset({"clicks"})
    sample = sampled(
        replace(snapshot(0, 100_000, 2 * MB, start=0), odd=odd),
        replace(snapshot(10, 100_020, 3 * MB, start=0), odd=odd),
    )
    load = sample.partitions[KEY]
    assert (load.bytes, load.quality) == (pytest.approx(0.1 * MB), Quality.ESTIMATED)


def test_offsets_that_went_back_have_no_rate_and_are_named() -> None:
    sample = sampled(snapshot(0, 1000, MB), snapshot(60, 500, MB))
    assert KEY not in sample.partitions
    assert [problem.kind for problem in sample.problems] == [ProblemKind.RESET]


def test_another_topic_under_the_same_name_has_no_rate() -> None:
    sample = sampled(snapshot(0, 1000, MB), replace(snapshot(60, 5000, MB), topic_ids={"clicks": "another"}))
    assert KEY not in sample.partitions
    assert [problem.kind for problem in sample.problems] == [ProblemKind.RESET]


def test_after_a_change_of_leader_the_rate_is_an_estimate() -> None:
    later = replace(snapshot(60, 1600, 120 * MB), partitions={KEY: look(1600, leader=2, epoch=1)})
    assert sampled(snapshot(0, 1000, 60 * MB), later).partitions[KEY].quality is Quality.ESTIMATED


def test_a_new_partition_waits_for_the_next_sample() -> None:
    later = snapshot(60, 1600, 120 * MB)
    grown = replace(later, partitions={KEY: look(1600), OTHER: look(10)})
    sample = sampled(snapshot(0, 1000, 60 * MB), grown)
    assert sample.partitions.keys() == {KEY}


def test_a_broker_whose_sizes_are_unknown_is_named_and_the_others_are_measured() -> None:
    def both(clock: float, end: int) -> Snapshot:
        return Snapshot(
            cluster_id="c",
            at=clock,
            clock=clock,
            partitions={KEY: look(end, replicas=(1,)), OTHER: look(end, leader=2, replicas=(2,))},
            starts={KEY: 0, OTHER: 0},
            sizes={1: {KEY: end * 1000.0}},
            sized={1: clock},
        )

    sample = sampled(both(0, 5000), both(10, 6000))
    assert sample.partitions.keys() == {KEY}
    assert sample.brokers.keys() == {1}
    assert [(problem.kind, problem.subject) for problem in sample.problems] == [(ProblemKind.UNAVAILABLE, "broker 2")]


def test_idle_is_zero_and_not_missing() -> None:
    sample = sampled(snapshot(0, 1000, MB), snapshot(60, 1000, MB))
    assert (sample.partitions[KEY].bytes, sample.partitions[KEY].messages) == (0, 0)


def test_traffic_of_brokers_counts_replication_consumers_and_moves() -> None:
    """1 MB/s to broker 1, followed by 2, read once by a group; a replica arrives on 3 with 2 MB/s."""

    def moving(clock: float, end: int, arrived: float, read: int) -> Snapshot:
        found = snapshot(clock, end, (end - 400) * 0.1 * MB)
        return replace(
            found,
            partitions={KEY: PartitionLook(end, 1, 0, (1, 2, 3), (1, 2))},
            sizes={**found.sizes, 3: {KEY: arrived}},
            sized={**found.sized, 3: clock},
            arriving={KEY: frozenset({3})},
            committed={"readers": {KEY: read}},
        )

    sample = sampled(moving(0, 10_000, 0, 9_000), moving(10, 10_100, 20 * MB, 9_100))
    brokers = {id: (load.rx, load.tx, load.moved_in, load.moved_out) for id, load in sample.brokers.items()}
    assert brokers[1] == pytest.approx((MB, 4 * MB, 0, 2 * MB))
    assert brokers[2] == pytest.approx((MB, 0, 0, 0))
    assert brokers[3] == pytest.approx((2 * MB, 0, 2 * MB, 0))
    assert {load.quality for load in sample.brokers.values()} == {Quality.ESTIMATED}


def test_first_offsets_are_asked_for_once_and_then_in_rounds() -> None:
    keys = [TopicPartition("t", number) for number in range(50)]
    sampler = Sampler()
    assert sampler.ask_start(keys) == keys
    asked = []
    for clock in range(START_ROUNDS):
        starts = dict.fromkeys(sampler.ask_start(keys), 0)
        asked.append(set(starts))
        views = {key: look(1) for key in keys}
        sampler.add(Snapshot("c", clock, clock, views, starts, {}, {}))
    assert [len(some) for some in asked] == [50, 50, 10, 10, 10]
    assert set().union(*asked[2:]) < set(keys)
    assert set(sampler.ask_start(keys)).isdisjoint(set().union(*asked[2:]))


def test_another_cluster_at_the_address_begins_afresh() -> None:
    sampler = Sampler()
    sampler.add(snapshot(0, 1000, MB))
    assert sampler.add(replace(snapshot(60, 1600, MB), cluster_id="another")) is None
