"""The real driver in simulated worlds that are steered by hand: what takes minutes on a clock takes none here."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import Decision, Decisions, block_subject
from blockhouse_aggregator.protocol.state import Stage
from tests.simulation.clock import Process
from tests.simulation.logs import BAD
from tests.simulation.replica import Node
from tests.simulation.run import Universe, setting_of, universe
from tests.simulation.safeguards import ELSEWHERE, FOLDERS, FOUND, OUTSIDE, patches, why_left_out
from tests.simulation.world import Chances, Setting
from tests.simulation.zookeeper import ZkSession

CALM = replace(
    setting_of(0), clusters=1, partitions=1, replicas=2, tables=2, faults=0, window=100, window_seconds=3600, split=1,
    quorum_timeout=2.0, session_timeout=6.0, server_session=6.0, cleaner=12.0, max_age=0.3, metadata_units=4095,
    slots=8, lease=5.0, chances=Chances(), zoned=False, new_tables=0, event="",
)  # fmt: skip


def produced(made: Universe, table: int, count: int) -> None:
    made.clusters["a"].logs[0].kinds.extend([table] * count)


def stored(made: Universe, table: int) -> int:
    return sum(part.safe for part in made.shard.tables[table].rows.values())


def owner_of(made: Universe) -> Node:
    return next(node for node in made.nodes if node.name == made.clusters["a"].owner(0))


def in_flight(node: Node, partition: int) -> list[tuple[Stage, str]]:
    """Stages of the blocks of a stream of cluster a that the node has in its hands, and why one is blocked."""
    owner = node.aggregator.owners.get(StreamId("a", "events", partition))
    blocks = [entry.block for entry in owner.state.in_flight] if owner is not None and owner.state is not None else []
    return [(block.stage, block.reason) for block in blocks]


def wait_for_takeover(made: Universe, former: Node) -> None:
    others = [node.name for node in made.nodes if node is not former]
    assert made.run(30, lambda: made.clusters["a"].owner(0) in others), "no owner took the stream over"


def killed_in_mid_insert(made: Universe, table: int, count: int) -> Node:
    """The stream's owner, which died with a block of so many messages in flight; they can be stored by now."""
    owner = owner_of(made)
    made.shard.tables[table].fetches_stopped = True
    produced(made, table, count)
    assert made.run(5, lambda: any(worker.inserting for worker in owner.workers.values()))
    owner.kill()
    made.shard.tables[table].fetches_stopped = False
    return owner


def given(**changes: object) -> Setting:
    return replace(CALM, **changes)  # type: ignore[arg-type]


def test_a_table_whose_quorum_hangs_does_not_stop_its_stream_when_a_lease_ends() -> None:
    """Too old to be trusted, its block waits for the quorum before it is granted; the lease must not wait with it."""
    with universe(given(window=1)) as made:
        made.run(3)
        made.shard.tables[0].fetches_stopped = True
        produced(made, 0, 3)
        for _ in range(120):
            produced(made, 1, 1)
            made.run(1)
            assert made.world.harm is None
            late = made.clusters["a"].logs[0].kinds.count(1) - stored(made, 1)
            assert late <= 30, f"{late} messages of the other table wait at {made.world.loop.time():.0f} s"
        assert stored(made, 0) == 0
        made.settle()
        assert made.world.harm is None
        assert stored(made, 0) == 3


def test_an_owner_killed_at_any_moment_leaves_nothing_undone() -> None:
    with universe(given(replicas=2)) as made:
        made.run(3)
        for _ in range(5):
            produced(made, 0, 4)
            made.run(0.4)
            for node in made.nodes:
                node.kill()
                made.world.later(1.0, node.start)
            made.run(4)
        made.settle()
        assert made.world.harm is None
        assert stored(made, 0) == 20


def test_what_waits_in_a_stream_that_is_taken_over_is_loaded_without_waiting_for_its_age() -> None:
    with universe(given(max_age=10.0)) as made:
        made.run(3)
        owner = owner_of(made)
        owner.kill()
        produced(made, 0, 4)
        wait_for_takeover(made, owner)
        assert made.run(3, lambda: stored(made, 0) == 4), "it gathered for as long as any other block"


def test_a_replay_is_stored_before_a_round_that_would_have_to_leave_its_table_out() -> None:
    """Such a round takes a second, and what it read of the table has to be read again in the next."""
    with universe(given(max_age=0.1, tables=1)) as made:
        made.run(3)
        owner = killed_in_mid_insert(made, 0, 3)
        produced(made, 0, 4)
        wait_for_takeover(made, owner)
        assert made.run(1.2, lambda: stored(made, 0) == 7), "its table was left out of a round first"


def test_the_history_of_a_takeover_has_the_metadata_that_the_dead_owner_had_committed() -> None:
    with universe(given(tables=1)) as made:
        made.run(3)
        owner = killed_in_mid_insert(made, 0, 3)
        committed = made.clusters["a"].offsets[0].metadata
        wait_for_takeover(made, owner)
        made.run(1)
        entry = owner_of(made).aggregator.history.all()[-1]
        assert entry.metadata is not None
        assert (entry.metadata.text, entry.metadata.replica) == (committed, owner.name)
        assert len(entry.metadata.tables) == len(entry.replays) == 1


@pytest.mark.parametrize("seconds", [1, 4, 7])
def test_a_block_of_a_table_that_only_the_dead_owner_had_met_is_replayed_at_once(seconds: float) -> None:
    """The next owner reads the schema history every ten seconds, and knows the table by its id alone."""
    with universe(given(tables=1, new_tables=1, quorum_timeout=20.0)) as made:
        made.run(3 + seconds)
        owner = killed_in_mid_insert(made, 0, 3)
        wait_for_takeover(made, owner)
        assert made.run(1.5, lambda: stored(made, 0) == 3), "it waits for the next look"
        assert made.world.harm is None


def test_a_table_that_is_met_while_the_local_server_is_unavailable_is_not_called_unknown() -> None:
    """The server has not been asked for it yet: its messages wait, and a block of it that is taken over as well."""
    with universe(given(partitions=2, tables=1, new_tables=1, session_timeout=2.0)) as made:
        made.run(3)
        owner = owner_of(made)
        successor = next(node for node in made.nodes if node is not owner)
        killed_in_mid_insert(made, 0, 3)
        successor.server.kill()
        made.clusters["a"].logs[1].kinds.extend([0] * 3)
        assert made.run(2, lambda: bool(successor.aggregator.catalog.tables)), "it did not meet the table"
        wait_for_takeover(made, owner)
        waiting = [(Stage.REPLAY, "")]
        assert made.run(3, lambda: in_flight(successor, 0) == waiting), "the next owner did not get the block"
        made.run(2)
        assert made.world.harm is None
        assert in_flight(successor, 0) in (waiting, [])  # by then it may have left the group, for want of a server
        assert [known.unavailable for known in successor.aggregator.catalog.tables] == ["NotChecked"]
        successor.server.start()
        assert made.run(10, lambda: stored(made, 0) == 6)
        made.settle()
        assert made.world.harm is None


def test_a_block_of_a_table_that_is_refused_when_its_next_owner_starts_is_stored_when_the_table_is_fixed() -> None:
    with universe(CALM) as made:
        made.run(3)
        killed_in_mid_insert(made, 0, 3)
        made.shard.tables[0].altered = True
        for node in made.nodes:
            node.kill()
            node.start()
        produced(made, 1, 3)
        assert made.run(20, lambda: stored(made, 1) == 3)
        made.run(10)
        made.shard.tables[0].altered = False
        assert made.run(15, lambda: stored(made, 0) == 3), "nothing stores it"
        made.settle()
        assert made.world.harm is None


def test_a_stream_does_not_continue_without_the_names_of_its_tables() -> None:
    """The schema history is lost, as with a new ensemble: its messages must not count as another table's."""
    with universe(CALM) as made:
        made.run(3)
        killed_in_mid_insert(made, 0, 3)
        made.world.causes["a/events/0"] = {"SchemaHistoryIncomplete"}
        kept = set(made.ensemble.tables)
        made.ensemble.tables.clear()
        for node in made.nodes:
            node.kill()
            node.start()
        produced(made, 1, 3)
        made.run(20)
        assert stored(made, 1) == 0
        owners = [owner for node in made.nodes for owner in node.aggregator.owners.values()]
        assert [owner.stop.reason for owner in owners] == ["SchemaHistoryIncomplete"]
        made.ensemble.tables |= kept
        made.settle()
        assert made.world.harm is None
        assert (stored(made, 0), stored(made, 1)) == (3, 3)


def test_a_table_that_waits_for_its_insert_does_not_keep_one_of_the_same_size_waiting() -> None:
    with universe(given(lease=60.0, max_age=1.0, quorum_timeout=10.0)) as made:
        made.run(3)
        made.shard.tables[0].fetches_stopped = True
        for table in (0, 1):
            produced(made, table, 3)
        assert made.run(3, lambda: stored(made, 1) == 3)
        produced(made, 1, 3)
        assert made.run(3, lambda: stored(made, 1) == 6), "it waits for the other one's insert"
        assert stored(made, 0) == 0


def test_what_came_while_no_owner_read_does_not_wait_for_its_age_when_a_lease_begins() -> None:
    with universe(given(max_age=6.0, lease=2.0, tables=1, quorum_timeout=20.0)) as made:
        made.run(3)
        made.shard.tables[0].fetches_stopped = True
        produced(made, 0, 3)
        owner = owner_of(made)
        assert made.run(10, lambda: any(w.inserting for w in owner.workers.values()))
        first = set(owner.workers)
        produced(made, 0, 4)
        made.run(8)
        made.shard.tables[0].fetches_stopped = False
        assert made.run(10, lambda: bool(owner.workers) and not first & set(owner.workers)), "the lease does not end"
        assert made.run(3, lambda: stored(made, 0) == 7), "it was gathered again"


def test_what_is_gathered_is_stored_before_its_stream_is_released() -> None:
    """The next owner would have to read it again, and it would be that much older."""
    with universe(given(seed=1, max_age=20.0, tables=1)) as made:
        made.run(6)  # its first scan, which waits for nothing, is over
        produced(made, 0, 4)
        made.run(2)
        assert stored(made, 0) == 0, "it was not gathered"
        owner = owner_of(made)
        owner.aggregator.end(0, "the test")
        assert made.run(1.5, lambda: stored(made, 0) == 4), "it was left to the next owner"


def test_streams_go_to_another_replica_when_the_local_one_is_gone() -> None:
    """`handoverAfter`: the aggregator lives, its ClickHouse does not."""
    with universe(given(replicas=3)) as made:
        made.run(3)
        owner = owner_of(made)
        owner.server.kill()
        produced(made, 0, 4)
        assert made.run(60, lambda: stored(made, 0) == 4), "no owner took the stream over"
        assert made.clusters["a"].owner(0) != owner.name
        owner.server.start()
        made.settle()
        assert made.world.harm is None


def test_a_holder_whose_session_ends_in_mid_insert_is_found_out_by_the_second_holder() -> None:
    """The lock is no fence: two inserts of one table are under way, and neither is acknowledged before it is safe."""
    with universe(given(partitions=2, tables=1)) as made:
        made.run(4)
        logs = made.clusters["a"].logs
        holder, other = (next(n for n in made.nodes if n.name == made.clusters["a"].owner(p)) for p in (0, 1))
        assert holder is not other
        table = made.shard.tables[0]
        table.fetches_stopped = True
        logs[0].kinds.extend([0] * 3)
        assert made.run(10, lambda: table.pending is not None), "the first insert did not begin"
        made.ensemble.expire(holder.session)
        logs[1].kinds.extend([0] * 3)
        assert made.run(10, lambda: "default.t0" in other.locks.held), "the second did not get the lock"
        made.run(2)
        assert stored(made, 0) == 0
        made.settle()
        assert made.world.harm is None
        assert stored(made, 0) == 6


def test_when_all_sessions_end_at_once_all_owners_continue_under_new_ones() -> None:
    """As after an ensemble has been restored elsewhere under the same addresses."""
    with universe(given(partitions=2, replicas=3)) as made:
        made.run(3)
        for log in made.clusters["a"].logs:
            log.kinds.extend([0, 1, 0, 1])
        made.world.zookeeper_up = False
        made.run(8)
        made.world.zookeeper_up = True
        for session in list(made.ensemble.sessions):
            made.ensemble.expire(session)
        made.settle()
        assert made.world.harm is None
        assert stored(made, 0) + stored(made, 1) == 8
        assert all(node.session.generation > 0 for node in made.nodes)


def test_an_owner_that_sleeps_through_a_takeover_and_wakes_up_alone_continues_from_what_the_other_committed() -> None:
    """It gets its stream back in the poll in which it hears that it had lost it, its old plan still in its hands."""
    for seed in (1, 2, 3):
        with universe(given(session_timeout=3.0, server_session=3.0, seed=seed)) as made:
            made.run(4)
            sleeper = owner_of(made)
            other = next(node for node in made.nodes if node is not sleeper)
            made.misfortunes._eclipse()
            for _ in range(30):
                produced(made, 0, 2)
                made.run(1)
            assert (sleeper.incarnation, other.incarnation) == (1, 2), "the other one did not take over, or did not end"
            made.settle()
            assert made.world.harm is None
            assert stored(made, 0) == 60


def test_a_lock_that_a_stranger_keeps_makes_its_table_late_and_no_other() -> None:
    with universe(given(seed=1)) as made:
        made.run(3)
        made.ensemble.occupy("default.t0", 50)
        for table in (0, 1):
            produced(made, table, 3)
        assert made.run(10, lambda: stored(made, 1) == 3), "the other table waits too"
        made.run(35)
        assert stored(made, 0) == 0
        made.settle()
        assert made.world.harm is None
        assert stored(made, 0) == 3


def test_a_block_that_the_server_remembers_and_whose_rows_are_gone_is_not_called_stored() -> None:
    """As after DROP PARTITION, or when all replicas have lost the part."""
    with universe(given(tables=1)) as made:
        made.run(3)
        owner, table = owner_of(made), made.shard.tables[0]
        produced(made, 0, 3)
        assert made.run(5, lambda: table.pending is not None or bool(table.parts))
        owner.kill()
        assert made.run(3, lambda: stored(made, 0) == 3)
        made.world.causes["a/events/0"] = {"DuplicateButAbsent"}
        table.parts.clear()
        table.rows.clear()
        wait_for_takeover(made, owner)
        blocked = [(Stage.BLOCKED, "DuplicateButAbsent")]
        assert made.run(10, lambda: in_flight(owner_of(made), 0) == blocked), "its intent is passed"
        assert made.world.harm is None


def test_a_fresh_block_that_the_server_knows_already_is_not_called_stored() -> None:
    """As from another pipeline that loads the table, or from a topic of the same name and offsets."""
    with universe(given(tables=1)) as made:
        made.run(3)
        made.world.causes["a/events/0"] = {"FreshDuplicate"}
        made.shard.tables[0].blocks[(0, 0, tuple((0, offset, 0, 0) for offset in range(3)))] = made.world.now_ms()
        produced(made, 0, 3)
        blocked = [(Stage.BLOCKED, "FreshDuplicate")]
        assert made.run(10, lambda: in_flight(owner_of(made), 0) == blocked), "its intent is passed"
        assert made.world.harm is None


@pytest.mark.parametrize("kinds", [[0, BAD, 0], [0, 0, BAD]])
def test_a_dead_letter_in_the_range_of_a_block_that_is_cut_again_is_counted_once(kinds: list[int]) -> None:
    last = 2 if kinds[2] == 0 else 1
    with universe(given(tables=1)) as made:
        made.run(3)
        made.world.causes["a/events/0"] = {"FreshDuplicate", "BlockDecided", "BlockRecut"}
        table = made.shard.tables[0]
        table.blocks[(0, 0, ((0, 0, 0, 0), (0, last, 0, 0)))] = made.world.now_ms()
        made.clusters["a"].logs[0].kinds.extend(kinds)
        assert made.run(10, lambda: in_flight(owner_of(made), 0) == [(Stage.BLOCKED, "FreshDuplicate")])
        table.blocks.clear()
        made.run(10)
        person = ZkSession(made.ensemble, Process("person"), 0)
        decided = Decision(action=f"absent 0-{last}", by="me", at_ms=0)
        Decisions(person).put(block_subject(StreamId("a", "events", 0), "default.t0"), decided)
        produced(made, 0, 3)
        assert made.run(30, lambda: stored(made, 0) == 5), made.world.harm
        made.settle()
        assert made.world.harm is None


def test_every_safeguard_is_found_by_simulated_worlds_or_has_a_reason_not_to_be() -> None:
    everything = {path.stem: path for folder in FOLDERS for path in folder.glob("*.patch")}
    left_out = {name: why_left_out(name, path) for name, path in everything.items()}
    tried = patches([]).keys()
    assert tried == {name for name, why in left_out.items() if not why}
    assert tried - FOUND == set(), "does `python -m tests.simulation --safeguards NAME` find it? See safeguards.FOUND"
    assert FOUND - tried == set(), "no such patch is tried"
    unused = {*OUTSIDE.values(), *ELSEWHERE.values()} - set(left_out.values())
    assert not unused, "a reason without a patch"
