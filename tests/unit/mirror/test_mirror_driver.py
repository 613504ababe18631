"""Where a driver lets partitions begin: at the position that is stored, whatever does not answer at first."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from blockhouse.errors import Retryable
from blockhouse_mirror.gate.messages import Failed, PartitionReport, Released, Report
from blockhouse_mirror.protocol.ownership import GRANT_SECONDS, WIRE_SECONDS
from blockhouse_mirror.protocol.position import Holder, Position
from blockhouse_mirror.protocol.takeover import Reason
from blockhouse_mirror.runtime import discovering, position_writer
from blockhouse_mirror.runtime.driver import Driver
from blockhouse_mirror.runtime.partitions import Partition
from blockhouse_mirror.runtime.position_writer import PROOF_SECONDS
from tests.unit.mirror.driving import TOPIC, Clusters, P, Q, driver_of

STORED = Position("S", "t-id", 10, 50, 3, "u-id", 40, Holder.SETTLED)
NEW = Position("S", "t-id", 10, 10, -1, "u-id", 45, Holder.SETTLED)


@pytest.fixture
def clusters() -> Clusters:
    return Clusters()


@pytest.fixture
def driver(clusters: Clusters, monkeypatch: pytest.MonkeyPatch) -> Driver:
    return driver_of(clusters, monkeypatch)


def partition(driver: Driver, key: object = P) -> Partition:
    return next(each for each in driver.mirrored.partitions if each.key == key)


async def test_a_stored_position_is_continued_and_another_partition_begins(clusters: Clusters, driver: Driver) -> None:
    clusters.positions = {P: STORED}

    await driver.discovering.take_over()

    assert partition(driver).position == STORED
    assert partition(driver, Q).position == replace(NEW, start=0, offset=0, tail=0)


async def test_a_commit_without_an_answer_is_reported_while_it_is_waited_for(
    clusters: Clusters, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until the group is taken for lost nothing but this shows why nothing is mirrored."""
    monkeypatch.setattr(position_writer, "ANSWER_SECONDS", 0.01)
    await driver.discovering.take_over()
    clusters.answering.clear()
    writing = asyncio.ensure_future(driver.writer.write())
    try:
        async with asyncio.timeout(30):
            while "positions" not in driver.mirrored.errors:
                await asyncio.sleep(0)
        assert driver.mirrored.errors["positions"] == "group km-m on cluster b has not answered a commit for 0.01 s"
        assert not writing.done()
    finally:
        clusters.answering.set()
    await writing
    assert clusters.positions.keys() == {P, Q}


async def test_a_position_that_could_not_be_read_at_first_is_read_again(clusters: Clusters, driver: Driver) -> None:
    """Beginning at the source's begin instead would mirror everything a second time."""
    clusters.positions = {P: STORED}
    clusters.failures = [Retryable("the group does not answer")]

    with pytest.raises(Retryable):
        await driver.discovering.take_over()
    await driver.discovering.take_over()
    await driver.discovering.found(clusters.discover())

    assert partition(driver).position == STORED


async def test_what_a_former_driver_had_granted_waits_for_its_task(
    clusters: Clusters, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(discovering, "boot_time", lambda: 1_000.0)
    clusters.positions = {P: replace(STORED, holder=Holder.GRANTED), Q: STORED}

    await driver.discovering.take_over()

    assert driver.mirrored.ownership.free_at(P) == 1_000.0 + PROOF_SECONDS + GRANT_SECONDS + WIRE_SECONDS
    assert driver.mirrored.ownership.free_at(Q) is None


@pytest.mark.parametrize(("start", "offset"), [("Earliest", 10), ("Latest", 90)])
async def test_where_a_mirror_begins_is_configured(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch, start: str, offset: int
) -> None:
    driver = driver_of(clusters, monkeypatch, f"start: {start}\n")

    await driver.discovering.take_over()

    assert partition(driver).position == replace(NEW, start=offset, offset=offset)


async def test_latest_counts_also_for_a_partition_whose_leader_was_silent_at_first(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    driver = driver_of(clusters, monkeypatch, "start: Latest\n")
    silent = clusters.source.pop(P)
    await driver.discovering.take_over()
    assert partition(driver).position is None
    assert "does not answer" in partition(driver).waits

    clusters.source[P] = silent
    await driver.discovering.found(clusters.discover())

    assert partition(driver).position == replace(NEW, start=90, offset=90)


async def test_latest_counts_only_for_what_is_there_at_the_first_start(
    clusters: Clusters, monkeypatch: pytest.MonkeyPatch
) -> None:
    later = replace(TOPIC, partitions=1)
    clusters.topics = (later,)
    driver = driver_of(clusters, monkeypatch, "start: Latest\n")
    await driver.discovering.take_over()
    clusters.topics = (TOPIC,)

    await driver.discovering.found(clusters.discover())

    assert partition(driver, Q).position == replace(NEW, start=0, offset=0, tail=0)

    clusters.positions = {P: STORED}
    again = driver_of(clusters, monkeypatch, "start: Latest\n")
    await again.discovering.take_over()
    position = partition(again, Q).position
    assert position is not None
    assert position.offset == 0, "it was not there when the mirror started for the first time"


# --- what tasks report ------------------------------------------------------------------------------------------

PLACE = {"topic": "t", "partition": 0, "offset": 60, "epoch": 4, "tail": 50}


def report(generation: int, offset: int = 60) -> Report:
    figures = {"records": 10, "bytes": 100, "left_out": 2, "letters": 3, "in_flight": 0, "end": 95}
    one = PartitionReport.model_validate({**PLACE, "offset": offset, "generation": generation, **figures})
    return Report(partitions=(one,), acknowledged=10, latency_sum_ms=5_000, latency_max_ms=900)


async def granted(clusters: Clusters, driver: Driver) -> int:
    clusters.positions = {P: STORED}
    await driver.discovering.take_over()
    return driver.mirrored.ownership.granted(P, "task1").generation


async def test_what_a_task_reports_is_the_position_from_now_on(clusters: Clusters, driver: Driver) -> None:
    generation = await granted(clusters, driver)

    driver.reports.heard("task1", report(generation))
    await driver.writer.write()

    assert clusters.positions[P] == replace(STORED, offset=60, epoch=4, tail=50, holder=Holder.GRANTED)
    assert (partition(driver).records, partition(driver).left_out, partition(driver).lateness.end) == (10, 2, 95)
    assert (driver.reports.acknowledged, driver.reports.latency_sum, driver.reports.latency_max) == (10, 5.0, 0.9)


@pytest.mark.parametrize(("task", "later"), [("task2", 0), ("task1", 1)])
async def test_a_report_of_an_older_grant_or_another_task_moves_nothing(
    clusters: Clusters, driver: Driver, task: str, later: int
) -> None:
    generation = await granted(clusters, driver)

    driver.reports.heard(task, report(generation - later))
    driver.reports.heard(task, Released.model_validate({**PLACE, "generation": generation - later}))

    assert partition(driver).position == STORED
    assert (driver.mirrored.ownership.holder(P) is None) == (task == "task2")


async def test_a_released_partition_is_settled_and_free(clusters: Clusters, driver: Driver) -> None:
    generation = await granted(clusters, driver)

    driver.reports.heard("task1", Released.model_validate({**PLACE, "generation": generation}))

    assert driver.mirrored.ownership.holder(P) is None
    assert driver.mirrored.ownership.free_at(P) is None
    position = partition(driver).position
    assert position is not None
    assert position.holder is Holder.SETTLED


def failed(generation: int, reason: str, **more: int) -> Failed:
    one = {"topic": "t", "partition": 0, "generation": generation, "released": False}
    return Failed.model_validate({**one, "reason": reason, "message": "offset 7: too large", **more})


async def test_a_refused_batch_is_sent_again_one_by_one_and_a_refused_record_stops_its_partition(
    clusters: Clusters, driver: Driver
) -> None:
    """The first refusal may be of a neighbour in the same batch."""
    generation = await granted(clusters, driver)
    driver.reports.heard("task1", failed(generation, "RecordRefused", careful_until=25))
    assert partition(driver).careful_until == 25
    assert partition(driver).stop is None

    driver.reports.heard("task1", failed(generation, "RecordRefused"))

    stop = partition(driver).stop
    assert stop is not None
    assert stop.reason is Reason.REFUSED
    assert "offset 7" in stop.message


async def test_what_passes_is_tried_again_and_held_until_it_is_released(clusters: Clusters, driver: Driver) -> None:
    generation = await granted(clusters, driver)

    driver.reports.heard("task1", failed(generation, "TailUnreadable"))

    assert partition(driver).stop is None
    assert partition(driver).retry_at > 0.0
    assert "TailUnreadable" in partition(driver).waits
    assert driver.mirrored.ownership.holder(P) is not None


async def test_the_end_of_a_task_lets_its_partitions_wait(clusters: Clusters, driver: Driver) -> None:
    await granted(clusters, driver)

    driver.reports.task_ended("task1", 100.0)

    assert driver.mirrored.ownership.holder(P) is None
    assert driver.mirrored.ownership.free_at(P) == 100.0 + GRANT_SECONDS + WIRE_SECONDS, "since it was last confirmed"
    assert partition(driver).waits


async def test_no_task_starts_once_a_driver_ends(driver: Driver) -> None:
    """A check of the load that is under way may ask for tasks after they were asked to end."""
    await driver.tasks.stop(1.0)

    driver.tasks.resize(frozenset({"task0"}))

    assert driver.tasks.desired == frozenset()


async def test_what_was_read_of_a_topic_that_was_created_again_is_no_position(
    clusters: Clusters, driver: Driver
) -> None:
    """A consumer reads on at the same offset of the other topic, and nothing in what it gets shows that."""
    clusters.positions = {P: STORED}
    await driver.discovering.take_over()
    generation = driver.mirrored.ownership.granted(P, "task1").generation
    driver.reports.heard("task1", report(generation))
    clusters.topics = (replace(TOPIC, topic_id="another"),)

    await driver.writer.write()

    stopped = partition(driver)
    assert stopped.stop is not None
    assert (stopped.stop.reason, stopped.position) == (Reason.SOURCE_RECREATED, STORED)
    assert clusters.positions[P] == STORED
    driver.reports.heard("task1", report(generation))
    await driver.writer.write()
    assert clusters.positions[P] == STORED, "what the task reports later is none either"


async def test_a_write_that_is_cancelled_leaves_its_positions_to_the_next_one(
    clusters: Clusters, driver: Driver, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A driver that ends cancels the write that is under way, and writes once more."""
    clusters.positions = {P: STORED}
    await driver.discovering.take_over()
    generation = driver.mirrored.ownership.granted(P, "task1").generation
    driver.reports.heard("task1", report(generation))
    reported = partition(driver).position

    async def cancelled(*_: object) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(asyncio, "to_thread", cancelled)
        with pytest.raises(asyncio.CancelledError):
            await driver.writer.write()
    await driver.writer.write()

    assert clusters.positions[P] == reported != STORED
