"""When a block may be inserted, and when the server's "ok" acknowledges it. ZooKeeper, server and task are scripted,
because the cases are the rarest moments of a server."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from blockhouse.errors import Blocked, Retryable
from blockhouse.metadata.model import InFlight
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import DefaultKind, ServerColumn
from blockhouse.streams import StreamId
from blockhouse_aggregator.clickhouse.errors import Fault, ServerFault
from blockhouse_aggregator.clickhouse.presence import Origin, StoredRows
from blockhouse_aggregator.clickhouse.quorum import QuorumSnapshot
from blockhouse_aggregator.clickhouse.tables import By, Identity, ServerTable
from blockhouse_aggregator.gate.messages import Grant, Result
from blockhouse_aggregator.runtime import ports
from blockhouse_aggregator.runtime.stream.block import BlockToStore
from blockhouse_aggregator.runtime.stream.outcomes import (
    Absent,
    CannotTell,
    Condemned,
    Partial,
    Stored,
    TryAgain,
    Whole,
)
from blockhouse_aggregator.runtime.stream.storing import Storing

NOW = 1_800_000_000_000
COLUMNS = (ServerColumn(name="n", type="UInt32"), ServerColumn(name="_kafka_offset", type="UInt64"))
REVISION = first_revision(COLUMNS)
TABLE = ServerTable(
    database="default",
    name="t",
    engine="ReplicatedMergeTree",
    replicated=True,
    zookeeper_path="/t",
    replica_name="r1",
    columns=COLUMNS,
    deduplication_window=100,
    deduplication_window_seconds=604_800,
    provenance=frozenset({"_kafka_offset"}),
    materialized_views=(),
    partition_key="",
)
CLEAR = QuorumSnapshot(pending=False, failed_parts_version=1)
PENDING = QuorumSnapshot(pending=True, failed_parts_version=1)
FAILED = QuorumSnapshot(pending=False, failed_parts_version=2)
BLOCK = BlockToStore(
    stream=StreamId("a", "events", 0),
    topic_id="id",
    table=TABLE,
    intent=InFlight(begin=10, end=19, messages=10, revision=1, crc=7, intent_ms=NOW - 100),
    revision=REVISION,
    fresh=False,
)


@dataclass
class Lock:
    valid: bool = True


@dataclass
class World:
    """The shard, its locks and the task: `quorum` answers in order, the last one indefinitely."""

    quorum_answers: deque[QuorumSnapshot] = field(default_factory=lambda: deque([CLEAR]))
    recent_blocks: int = 0
    failed: tuple[str, ...] = ()
    altered: bool = False
    removed: str = ""
    lost_meanwhile: bool = False
    table: ServerTable = TABLE
    next_table: ServerTable | None = None
    """Takes the table's place while its rows are read."""
    stored_offsets: int = 0
    lacks_a_part: bool = False
    lock_free: bool = True
    claims: int = 0
    claimed_by_another: bool = False
    claimed_alone: bool = True
    lock: Lock = field(default_factory=Lock)
    outcome: Result | None = None
    held: set[str] = field(default_factory=set)
    grants: list[Grant] = field(default_factory=list)

    async def acquire(self, table: str, timeout: float, table_path: str | None = None) -> Lock | None:
        if not self.lock_free:
            return None
        self.held.add(table)
        return self.lock

    async def release(self, lock: Lock) -> None:
        self.held.clear()

    async def quorum(self, table: ServerTable) -> QuorumSnapshot:
        return self.quorum_answers.popleft() if len(self.quorum_answers) > 1 else self.quorum_answers[0]

    async def failed_parts(self, table: ServerTable) -> tuple[str, ...]:
        return self.failed

    async def blocks_since(self, table: ServerTable, since_ms: int, *, older_than_ms: int) -> int:
        assert since_ms < older_than_ms == BLOCK.intent.intent_ms or older_than_ms < NOW - 100_000
        return self.recent_blocks

    async def rows_removed(self, table: ServerTable, since_ms: int) -> str:
        assert since_ms < BLOCK.intent.intent_ms - 1000, "clocks may differ"
        return self.removed

    async def altered_since(self, table: ServerTable, since_ms: int) -> bool:
        assert since_ms < BLOCK.intent.intent_ms - 1000, "clocks may differ"
        return self.altered

    async def claimed(self, table: ServerTable, cluster: str, topic: str) -> bool:
        assert self.held == {"default.t"}, "a claim without the table's lock"
        assert (cluster, topic) == ("a", "events/id")
        self.claims += 1
        if self.claimed_by_another:
            raise Blocked("another pipeline loads it", reason="TableClaimed")
        return self.claimed_alone

    async def stored(
        self, table: ServerTable, origin: Origin, begin: int, end: int, failed: Sequence[str] = ()
    ) -> StoredRows:
        if failed:
            raise ServerFault("rows are in a part that failed", fault=Fault.REPLICA)
        if self.lacks_a_part:
            raise ServerFault("it lacks a part", fault=Fault.REPLICA, code=289)
        self.table = self.next_table or self.table
        return StoredRows({begin + i: 1 for i in range(self.stored_offsets)})

    async def describe(self, table: str) -> ServerTable | None:
        return self.table

    async def fingerprints(self) -> Mapping[str, int]:
        return {}

    async def prove(self, lock: ports.Lock) -> None:
        assert self.held == {"default.t"}, "a proof without the table's lock"
        if self.lost_meanwhile:
            raise Retryable("another owner has claimed the stream")

    async def insert(self, grant: Grant, lock: ports.Lock) -> Result:
        assert self.held == {"default.t"}, "an insert without the table's lock"
        self.grants.append(grant)
        return self.outcome or Result(block=grant.block, outcome="stored", attempts=1, elapsed=0.1)


def storing(world: World) -> Storing:
    return Storing(world, world, lifetime=0.6, now_ms=lambda: NOW, slots=2)


async def test_a_fresh_block_is_acknowledged_by_the_plain_ok() -> None:
    world = World(quorum_answers=deque([PENDING]))
    outcome = await storing(world).store(replace(BLOCK, fresh=True), world)
    assert isinstance(outcome, Stored)
    assert not world.grants[0].ask_provenance


async def test_an_ok_after_a_resend_inside_the_task_does_not_acknowledge() -> None:
    world = World()
    world.outcome = Result(block=BLOCK.key, outcome="stored", attempts=2, elapsed=0.1)
    outcome = await storing(world).store(replace(BLOCK, fresh=True), world)
    assert isinstance(outcome, TryAgain)


async def test_a_fresh_block_that_waited_beyond_its_lifetime_is_rebuilt_and_decided_not_inserted() -> None:
    world = World()
    thawed = replace(BLOCK, fresh=True, intent=replace(BLOCK.intent, intent_ms=NOW - 100_000))
    outcome = await storing(world).store(thawed, world)
    assert isinstance(outcome, TryAgain)
    assert outcome.rebuild
    assert not world.grants


async def test_a_grant_ends_a_lifetime_after_its_decision() -> None:
    world = World()
    await storing(world).store(replace(BLOCK, fresh=True, intent=replace(BLOCK.intent, intent_ms=NOW)), world)
    assert world.grants[0].deadline_ms == NOW + 600


async def test_an_early_ok_waits_until_no_quorum_is_pending() -> None:
    world = World(quorum_answers=deque([CLEAR, PENDING, PENDING, CLEAR]))
    outcome = await storing(world).store(BLOCK, world)
    assert isinstance(outcome, Stored)
    assert world.quorum_answers == deque([CLEAR])


async def test_an_early_ok_does_not_acknowledge_while_the_quorum_stays_unmet() -> None:
    world = World(quorum_answers=deque([CLEAR, PENDING]))
    outcome = await storing(world).store(BLOCK, world)
    assert isinstance(outcome, TryAgain)


async def test_an_early_ok_does_not_acknowledge_when_the_part_failed_meanwhile() -> None:
    world = World(quorum_answers=deque([CLEAR, PENDING, FAILED]))
    outcome = await storing(world).store(BLOCK, world)
    assert isinstance(outcome, TryAgain)


async def test_an_intent_that_may_have_left_the_window_is_decided_by_provenance() -> None:
    world = World(recent_blocks=60)
    outcome = await storing(world).store(BLOCK, world)
    assert world.grants[0].ask_provenance
    assert isinstance(outcome, Stored)


async def test_an_intent_older_than_the_windows_time_is_decided_by_provenance() -> None:
    world = World()
    old = replace(BLOCK, intent=replace(BLOCK.intent, intent_ms=NOW - 600_000_000))
    await storing(world).store(old, world)
    assert world.grants[0].ask_provenance


def with_tokens(since_ms: int) -> ServerTable:
    return replace(TABLE, identity=Identity(By.TOKEN, since_ms))


async def test_where_every_replica_has_tokens_a_block_is_recognised_after_an_added_column() -> None:
    added = (*TABLE.columns, ServerColumn(name="extra", type="UInt8"))
    world = World(table=replace(with_tokens(NOW - 60_000), columns=added), altered=True)
    assert isinstance(await storing(world).store(BLOCK, world), Stored)
    assert [(grant.ask_provenance, grant.exact, grant.by_token) for grant in world.grants] == [(False, False, True)]


async def test_a_block_sent_before_the_servers_had_tokens_is_decided_by_provenance() -> None:
    """Its first insert had no token: the server would store it again under one."""
    for table in (with_tokens(BLOCK.intent.intent_ms), replace(TABLE, identity=Identity(By.NOTHING))):
        world = World(table=table)
        await storing(world).store(BLOCK, world)
        assert [(grant.ask_provenance, grant.by_token) for grant in world.grants] == [(True, False)]


async def test_a_token_does_not_outlive_the_window() -> None:
    world = World(table=with_tokens(NOW - 60_000), recent_blocks=TABLE.deduplication_window)
    await storing(world).store(BLOCK, world)
    assert [(grant.ask_provenance, grant.by_token) for grant in world.grants] == [(True, False)]


async def test_a_block_of_another_aggregator_had_no_token_of_ours() -> None:
    world = World(table=with_tokens(NOW - 60_000))
    outcome = await storing(world).store(FOREIGN_BLOCK, world)
    assert isinstance(outcome, Condemned)
    assert world.grants == []


async def test_a_trusted_replay_is_inserted_only_into_exactly_the_blocks_columns() -> None:
    world = World()
    await storing(world).store(BLOCK, world)
    await storing(world).store(replace(BLOCK, fresh=True), world)
    assert [(grant.ask_provenance, grant.exact) for grant in world.grants] == [(False, True), (False, False)]


async def test_a_block_of_an_older_revision_is_decided_by_provenance() -> None:
    """Even when the catalog has not noticed the new column yet."""
    added = replace(TABLE, columns=(*TABLE.columns, ServerColumn(name="new", type="UInt8")))
    world = World(table=added)
    await storing(world).store(BLOCK, world)
    assert world.grants[0].ask_provenance


async def test_a_block_whose_materialized_column_looks_something_up_is_decided_by_provenance() -> None:
    looked_up = ServerColumn(
        name="v", type="String", default_kind=DefaultKind.MATERIALIZED, default_expression="joinGet('d', 'v', n)"
    )
    table = replace(TABLE, columns=(*COLUMNS, looked_up))
    for identity, asked in ((TABLE.identity, True), (Identity(By.TOKEN, 0), False)):
        world = World(table=replace(table, identity=identity))
        await storing(world).store(replace(BLOCK, revision=first_revision(table.columns)), world)
        assert world.grants[0].ask_provenance is asked


async def test_a_block_is_decided_by_provenance_after_an_alter_this_replica_does_not_show() -> None:
    """Added and dropped again, or on its way: another replica may have stored the block with other columns."""
    world = World(altered=True)
    await storing(world).store(BLOCK, world)
    assert world.grants[0].ask_provenance


async def test_provenance_is_not_asked_while_a_quorum_is_pending() -> None:
    world = World(recent_blocks=60, quorum_answers=deque([PENDING]))
    outcome = await storing(world).store(BLOCK, world)
    assert isinstance(outcome, TryAgain)
    assert outcome.cause == "timeout"
    assert not world.grants


async def test_what_provenance_found_is_not_believed_when_a_part_failed_while_it_was_asked() -> None:
    world = World(recent_blocks=60, quorum_answers=deque([CLEAR, FAILED]))
    world.outcome = Result(block=BLOCK.key, outcome="stored", attempts=1, elapsed=0.1, presence="complete")
    outcome = await storing(world).store(BLOCK, world)
    assert isinstance(outcome, TryAgain)
    assert outcome.cause == "quorum"


async def test_rows_of_a_part_that_failed_do_not_count() -> None:
    """A replica that has just been started shows them until it becomes active."""
    world = World(recent_blocks=60, failed=("all_7_7_0",))
    await storing(world).store(BLOCK, world)
    assert [grant.failed_parts for grant in world.grants] == [("all_7_7_0",)]

    found = await storing(World(stored_offsets=10, failed=("all_7_7_0",))).provenance(BLOCK)
    assert isinstance(found, CannotTell)
    assert found.after is not None, "it is asked again"


async def test_the_number_with_which_the_server_refused_a_question_is_kept() -> None:
    class Refusing(World):
        async def quorum(self, table: ServerTable) -> QuorumSnapshot:
            raise ServerFault("the table is read-only", fault=Fault.REPLICA, code=242)

    world = Refusing()
    outcome = await storing(world).store(BLOCK, world)
    assert isinstance(outcome, TryAgain)
    assert (outcome.cause, outcome.fault) == ("242", "replica")


async def test_nothing_is_granted_without_the_lock() -> None:
    world = World(lock_free=False)
    outcome = await storing(world).store(BLOCK, world)
    assert not world.grants
    assert isinstance(outcome, TryAgain)
    assert outcome.cause == "timeout"


async def test_nothing_is_granted_under_a_lock_whose_session_was_lost() -> None:
    world = World(lock=Lock(valid=False))
    outcome = await storing(world).store(BLOCK, world)
    assert not world.grants
    assert isinstance(outcome, TryAgain)


async def test_nothing_comes_between_the_check_of_the_lock_and_the_grant() -> None:
    class Ending(Lock):
        """Its session is over as soon as the event loop does anything else after the first check."""

        def __getattribute__(self, name: str) -> Any:
            if name == "valid":
                asyncio.get_running_loop().call_soon(over.set)
            return super().__getattribute__(name)

    class Task:
        async def insert(self, grant: Grant, lock: ports.Lock) -> Result:
            late.append(over.is_set())
            return Result(block=grant.block, outcome="stored", attempts=1, elapsed=0.0)

        async def prove(self, lock: ports.Lock) -> None: ...

    over, late = asyncio.Event(), list[bool]()
    await storing(World(lock=Ending())).store(replace(BLOCK, fresh=True), Task())
    assert late == [False]


async def test_two_streams_of_one_aggregator_never_insert_into_a_table_at_once() -> None:
    world = World()
    store = storing(world)
    running = 0

    class Task:
        async def insert(self, grant: Grant, lock: ports.Lock) -> Result:
            nonlocal running
            running += 1
            assert running == 1
            await asyncio.sleep(0)
            running -= 1
            return Result(block=grant.block, outcome="stored", attempts=1, elapsed=0.0)

        async def prove(self, lock: ports.Lock) -> None: ...

    outcomes = await asyncio.gather(*(store.store(replace(BLOCK, fresh=True), Task()) for _ in range(5)))
    assert all(isinstance(outcome, Stored) for outcome in outcomes)


async def test_a_lost_task_leaves_the_fate_open_and_the_lock_free() -> None:
    class Gone:
        async def insert(self, grant: Grant, lock: ports.Lock) -> Result:
            raise Retryable("the connection to the task broke")

        async def prove(self, lock: ports.Lock) -> None: ...

    world = World()
    outcome = await storing(world).store(BLOCK, Gone())
    assert isinstance(outcome, TryAgain)
    assert not world.held


async def test_a_block_is_whole_only_when_every_message_is_stored() -> None:
    assert await storing(World(stored_offsets=10)).provenance(BLOCK) == Whole()
    assert await storing(World(stored_offsets=4)).provenance(BLOCK) == Partial(messages=4, expected=10, rows=4)


async def test_a_block_over_partitions_is_not_believed_whole_because_every_message_shows() -> None:
    """Of message 7 one row of two may be stored: its part was written, the other one was not."""
    over_days = replace(BLOCK, table=replace(TABLE, partition_key="toYYYYMMDD(day)"))
    assert await storing(World(stored_offsets=10)).provenance(over_days) == Partial(10, 10, 10)


FOREIGN_BLOCK = replace(BLOCK, intent=InFlight(begin=10, end=19, messages=10, revision=0, crc=1, intent_ms=NOW - 100))


async def test_a_foreign_block_is_sent_again_while_deduplication_certainly_knows_it() -> None:
    world = World()
    outcome = await storing(world).store(FOREIGN_BLOCK, world)
    assert isinstance(outcome, Stored)
    assert [(grant.ask_provenance, grant.exact) for grant in world.grants] == [(False, True)]


async def test_a_foreign_block_that_deduplication_may_have_forgotten_is_blocked() -> None:
    """Its rows have no provenance: asked, the table would show none of them, and they would be inserted twice."""
    for world in (World(recent_blocks=60), World(altered=True)):
        outcome = await storing(world).store(FOREIGN_BLOCK, world)
        assert isinstance(outcome, Condemned)
        assert outcome.reason == "ForeignBlockUndecided"
        assert not world.grants
    found = await storing(World(stored_offsets=10)).provenance(FOREIGN_BLOCK)
    assert isinstance(found, CannotTell)
    assert found.after is None


async def test_a_block_is_proved_absent_only_when_no_row_of_it_is_stored_and_no_quorum_is_pending() -> None:
    assert await storing(World()).provenance(BLOCK) == Absent()
    assert await storing(World(stored_offsets=1)).provenance(BLOCK) == Partial(messages=1, expected=10, rows=1)
    for answers in (deque([PENDING]), deque([CLEAR, FAILED])):
        found = await storing(World(quorum_answers=answers)).provenance(BLOCK)
        assert isinstance(found, CannotTell)
        assert found.after is not None, "it is asked again"


FULL = replace(TABLE, provenance=frozenset({"_kafka_cluster", "_kafka_partition", "_kafka_offset"}))


async def test_a_fresh_block_that_the_server_knows_is_never_called_stored() -> None:
    world = World()
    world.outcome = Result(block=BLOCK.key, outcome="stored", attempts=1, elapsed=0.1, deduplicated=True)
    outcome = await storing(world).store(replace(BLOCK, fresh=True, table=FULL), world)
    assert isinstance(outcome, Condemned)
    assert outcome.reason == "FreshDuplicate"

    unidentified = await storing(world).store(replace(BLOCK, fresh=True), world)
    assert isinstance(unidentified, Stored), "equal rows of two blocks are one to the server: a hazard, not a fault"


async def test_an_answer_that_comes_after_another_owner_took_over_condemns_no_fresh_block() -> None:
    """A server was frozen with our insert; the other owner has replayed the block by then."""
    world = World(lost_meanwhile=True)
    world.outcome = Result(block=BLOCK.key, outcome="stored", attempts=1, elapsed=60, deduplicated=True)
    outcome = await storing(world).store(replace(BLOCK, fresh=True, table=FULL), world)
    assert isinstance(outcome, TryAgain)
    assert outcome.rebuild


async def test_a_fresh_block_that_was_sent_twice_by_its_task_may_be_known() -> None:
    world = World()
    world.outcome = Result(block=BLOCK.key, outcome="stored", attempts=2, elapsed=0.1, deduplicated=True)
    assert isinstance(await storing(world).store(replace(BLOCK, fresh=True, table=FULL), world), TryAgain)


async def test_an_inherited_block_that_is_a_duplicate_and_not_there_is_a_hole() -> None:
    world = World(table=FULL)
    world.outcome = Result(block=BLOCK.key, outcome="stored", attempts=1, elapsed=0.1, deduplicated=True)
    outcome = await storing(world).store(replace(BLOCK, table=FULL), world)
    assert isinstance(outcome, Condemned)
    assert outcome.reason == "DuplicateButAbsent"

    world.stored_offsets = BLOCK.intent.messages
    assert isinstance(await storing(world).store(replace(BLOCK, table=FULL), world), Stored)


async def test_rows_of_a_table_that_took_the_name_while_they_were_read_decide_nothing() -> None:
    world = World(table=FULL, next_table=replace(FULL, zookeeper_path="/another"))
    world.outcome = Result(block=BLOCK.key, outcome="stored", attempts=1, elapsed=0.1, deduplicated=True)
    assert isinstance(await storing(world).store(replace(BLOCK, table=FULL), world), TryAgain)

    asked = World(table=FULL, next_table=replace(FULL, zookeeper_path="/another"))
    found = await storing(asked).provenance(replace(BLOCK, table=FULL))
    assert isinstance(found, CannotTell)
    assert found.after is not None, "it is asked again"


async def test_an_inherited_block_that_was_not_there_and_is_a_duplicate_is_not_stored_by_that_alone() -> None:
    """Its part may be one that all replicas have lost: whether it is there now has to be known."""
    world = World(table=FULL, lacks_a_part=True)
    absent = Result(block=BLOCK.key, outcome="stored", attempts=1, elapsed=0.1, deduplicated=True, presence="absent")
    world.outcome = absent
    assert isinstance(await storing(world).store(replace(BLOCK, table=FULL), world), TryAgain)
    world.outcome = absent.model_copy(update={"presence": ""})
    assert isinstance(await storing(world).store(replace(BLOCK, table=FULL), world), Stored), "the window has decided"


async def test_a_duplicate_whose_part_failed_meanwhile_is_sent_again_before_it_is_a_hole() -> None:
    world = World(table=FULL, quorum_answers=deque([CLEAR, FAILED]))
    world.outcome = Result(block=BLOCK.key, outcome="stored", attempts=1, elapsed=0.1, deduplicated=True)
    assert isinstance(await storing(world).store(replace(BLOCK, table=FULL), world), TryAgain)


async def test_a_table_that_another_pipeline_has_claimed_gets_nothing() -> None:
    world = World(claimed_by_another=True)
    outcome = await storing(world).store(replace(BLOCK, fresh=True), world)
    assert isinstance(outcome, Condemned)
    assert outcome.reason == "TableClaimed"
    assert world.grants == []
    found = await storing(world).provenance(BLOCK)
    assert isinstance(found, CannotTell)


async def test_a_claim_is_asked_for_once_while_the_lock_is_held() -> None:
    world = World(claimed_alone=False, recent_blocks=100)
    under = storing(world)
    await under.store(BLOCK, world)
    await under.store(BLOCK, world)
    assert world.claims == 1
    assert [grant.sole for grant in world.grants] == [False, False]
    world.lock = Lock()
    await under.store(BLOCK, world)
    assert world.claims == 2
