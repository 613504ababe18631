"""Topics, logs, offsets and markers that become others under the real driver, steered by hand."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any

import pytest

from blockhouse.errors import Blocked, Retryable
from blockhouse.metadata.model import Metadata, Window
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import StreamMarker
from tests.simulation.clock import Process
from tests.simulation.logs import HOLE
from tests.simulation.markers import SimMarkers
from tests.simulation.run import Universe, universe
from tests.simulation.zookeeper import ZkSession
from tests.unit.simulation.test_directed_worlds import CALM, given, owner_of, produced, stored

STREAM = StreamId("a", "events", 0)


def stop_of(made: Universe) -> str:
    """Why the stream stands still; empty while it does not."""
    name = made.clusters["a"].owner(0)
    running = (node.aggregator for node in made.nodes if node.name == name and node.driver.alive)
    owner = next((a.owners[STREAM] for a in running if a is not None and STREAM in a.owners), None)
    return owner.stop.reason if owner is not None and owner.stop is not None else ""


def expects(made: Universe, *reasons: str) -> None:
    made.world.causes[str(STREAM)] = set(reasons)


def test_nothing_of_a_topic_that_is_created_again_is_committed_before_a_person_accepts_it() -> None:
    with universe(given(tables=1)) as made:
        made.run(3)
        produced(made, 0, 5)
        assert made.run(5, lambda: stored(made, 0) == 5)
        cluster = made.clusters["a"]
        expects(made, "TopicRecreated")
        cluster.topic += 1
        cluster.logs[0].create_again(cluster.topic)
        produced(made, 0, 9)
        assert made.run(10, lambda: stop_of(made) == "TopicRecreated")
        made.run(5)
        assert stored(made, 0) == 5
        made.operator.begin()
        made.settle()
        assert made.world.harm is None
        assert stored(made, 0) == 14


def test_a_round_read_behind_a_replay_of_a_log_that_was_cut_is_not_committed() -> None:
    """The replay's reader knows the new leader by then, and does not ask when it seeks behind what was cut."""
    with universe(given(tables=2, lease=60.0)) as made:
        made.run(3)
        owner = owner_of(made)
        log = made.clusters["a"].logs[0]
        made.shard.tables[0].fetches_stopped = True
        log.kinds.extend([1, 0, 0, 0])
        assert made.run(5, lambda: any(worker.inserting for worker in owner.workers.values()))
        assert made.run(5, lambda: stored(made, 1) == 1)
        expects(made, "LogTruncated", "ReplayRangeExpired", "ReplayDiffers", "BeyondLogEnd")
        for worker in list(owner.workers.values()):
            owner.kill_worker(worker)
        log.cut(2)
        log.kinds.extend([1] * 6)
        made.shard.tables[0].fetches_stopped = False
        assert made.run(20, lambda: stop_of(made) == "LogTruncated"), "it was read on"
        assert stored(made, 1) == 1
        made.operator.begin()
        made.settle()
        assert made.world.harm is None
        assert stored(made, 1) == 7


def test_a_log_that_ends_within_a_block_that_is_to_be_read_again_stops_the_stream() -> None:
    """No producer writes to it any more: the reader of the replay would wait at its end indefinitely."""
    with universe(given(tables=1, lease=60.0)) as made:
        made.run(3)
        owner = owner_of(made)
        log = made.clusters["a"].logs[0]
        produced(made, 0, 3)
        assert made.run(5, lambda: stored(made, 0) == 3)
        made.shard.tables[0].fetches_stopped = True
        produced(made, 0, 6)
        assert made.run(5, lambda: any(worker.inserting for worker in owner.workers.values()))
        expects(made, "LogTruncated", "ReplayRangeExpired", "ReplayDiffers", "BeyondLogEnd")
        for worker in list(owner.workers.values()):
            owner.kill_worker(worker)
        log.cut(5)
        made.shard.tables[0].fetches_stopped = False
        assert made.run(30, lambda: stop_of(made) == "LogTruncated"), "it was waited for"
        made.operator.begin()
        produced(made, 0, 2)
        made.settle()
        assert made.world.harm is None


@pytest.mark.parametrize("marker", [False, True])
def test_a_new_leader_that_has_everything_stops_nothing(marker: bool) -> None:
    """A transaction's marker of the new epoch may be the last record that was read."""
    with universe(given(tables=1)) as made:
        made.run(3)
        for _ in range(3):
            produced(made, 0, 3)
            made.run(3)
            log = made.clusters["a"].logs[0]
            log.content.elect()
            log.kinds.extend([HOLE] * marker)
            made.run(3)
            owner_of(made).kill()
            for node in made.nodes:
                made.world.later(1.0, node.start)
        made.settle()
        assert made.world.harm is None
        assert stored(made, 0) == 9


def test_offsets_that_went_back_with_their_metadata_are_accepted_from_where_the_rows_end() -> None:
    with universe(given(tables=1)) as made:
        made.run(3)
        for _ in range(4):
            produced(made, 0, 3)
            made.run(2)
        expects(made, "OffsetsWentBack")
        assert made.events._go_back(made.clusters["a"], restores=False)
        assert made.run(30, lambda: stop_of(made) == "OffsetsWentBack")
        made.operator.begin()
        produced(made, 0, 3)
        made.settle()
        assert made.world.harm is None
        assert stored(made, 0) == 15
        histories = [entry for node in made.nodes for entry in node.aggregator.history.all()]
        (accepted,) = (entry for entry in histories if entry.accepted)
        assert accepted.metadata is not None, "what was set aside is kept"
        assert accepted.metadata.sequence > accepted.sequence == 0


def test_streams_whose_markers_are_lost_continue_where_they_are_once_a_person_accepts_it() -> None:
    with universe(CALM) as made:
        made.run(3)
        produced(made, 0, 6)
        made.run(3)
        assert made.events.markers()
        assert made.run(40, lambda: stop_of(made) == "MarkerMissing")
        produced(made, 0, 3)
        made.operator.begin()
        made.settle()
        assert made.world.harm is None
        assert stored(made, 0) == 9


async def outcome(doing: Awaitable[None]) -> str:
    """Why it was not done; empty when it was."""
    try:
        await doing
    except Blocked as error:
        return error.reason
    except Retryable as error:
        return type(error).__name__
    return ""


def test_the_late_marker_of_a_former_topic_does_not_replace_that_of_the_present_one() -> None:
    """An owner that was frozen after its first commit of the former topic writes its marker when it continues."""
    with universe(CALM) as made:
        session: Any = ZkSession(made.ensemble, Process("an aggregator"), 0)
        markers = SimMarkers(session, "r0", lambda: 0)
        former = Metadata("r0", 1, 0, "topic-a-0", 0, 5, Window())
        present = Metadata("r1", 1, 0, "topic-a-1", 0, 7, Window())

        async def mark(metadata: Metadata) -> str:
            return await outcome(markers.mark_started(STREAM, metadata, "h", afresh=False, claimed_by=""))

        answers: list[str] = []

        async def both() -> None:
            answers.extend([await mark(present), await mark(former), await mark(present)])

        made.world.loop.spawn(both())
        made.run(1)
        assert answers == ["", "StartedOnOtherTopic", ""]
        found = made.ensemble.marker(STREAM)
        assert found is not None
        assert (found.topic_id, found.position) == ("topic-a-1", 7)


def test_of_two_owners_that_a_person_lets_begin_afresh_only_the_later_one_marks_the_stream() -> None:
    """The earlier one lost the stream behind its first commit, and writes its marker when it continues: what it would
    insert then, the later one reads again and cuts into other blocks."""
    with universe(CALM) as made:
        session: Any = ZkSession(made.ensemble, Process("an aggregator"), 0)
        markers = SimMarkers(session, "r0", lambda: 0)
        before = Metadata("r0", 812, 0, "topic-a-0", 0, 90, Window())
        earlier, later = (Metadata("r0", 1, 0, "topic-a-0", 0, position, Window()) for position in (40, 36))
        answers: list[str] = []

        async def mark(metadata: Metadata, owner: str, *, afresh: bool = True) -> None:
            answers.append(await outcome(markers.mark_started(STREAM, metadata, "h", afresh=afresh, claimed_by=owner)))

        async def claim(seen: StreamMarker | None, owner: str) -> None:
            answers.append(await outcome(markers.claim_restart(STREAM, seen, owner, "LogTruncated")))

        async def one_after_the_other() -> None:
            await mark(before, "", afresh=False)
            seen = await markers.marker(STREAM)
            await claim(seen, "earlier")
            await claim(seen, "another")  # it has decided by a marker that is not there any more
            await claim(await markers.marker(STREAM), "later")
            await mark(earlier, "earlier")
            await mark(later, "later")
            await mark(later, "later")  # what it does not know to be written it writes again

        made.world.loop.spawn(one_after_the_other())
        made.run(1)
        assert answers == ["", "", "VersionConflict", "", "StartedByOtherOwner", "", ""]
        found = made.ensemble.marker(STREAM)
        assert found is not None
        assert (found.seq, found.position, found.owner) == (1, 36, "later")


@pytest.mark.parametrize("way", ["late_first_mark", "late_mark", "late_mark_of_the_next", "late_claim"])
def test_an_owner_that_sleeps_as_it_begins_a_stream_leaves_the_marker_of_a_later_one(way: str) -> None:
    with universe(given(tables=1, lease=60.0)) as made:
        made.operator.begin()
        getattr(made.events._restarts, f"_{way}")()
        made.run(3)
        produced(made, 0, 6)
        asleep = "asleep before a claim" if way == "late_claim" else "asleep before a mark"
        assert made.run(60, lambda: made.world.counts.get(asleep) == 1)
        produced(made, 0, 4)
        made.run(60)
        made.settle()
        assert made.world.harm is None
