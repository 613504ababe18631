"""What may happen next. Any order of any of these is a possible history; which are enabled never depends on wishes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from random import Random

from blockhouse_aggregator.protocol.events import Commit, Flush
from blockhouse_aggregator.protocol.schedule import ScanRequest, lagging, replays
from blockhouse_aggregator.protocol.schedule import scan as plan_scan
from blockhouse_aggregator.protocol.state import StreamState
from blockhouse_aggregator.protocol.step import step
from tests.protocol_model.clickhouse import new_parts
from tests.protocol_model.world import Grant, Group, Owner, Phase, Setting, World


class Kind(StrEnum):
    """`who` is an owner, a table or a grant, as the kind demands."""

    # The surroundings
    REBALANCE = "the stream is assigned to owner {who}"
    POLL = "owner {who} polls and learns its generation"
    READ = "owner {who} reads the committed metadata"
    CRASH = "owner {who} crashes and starts again; its workers do not notice"
    SESSION_LOST = "the lock session of owner {who} expires"
    WINDOW_FULL = "other writers push everything out of the deduplication window of table {who}"
    QUORUM_MET = "the pending part of table {who} reaches its quorum"
    WRITER_LOST = "the writer of the pending part of table {who} is lost, and the part with it"
    LATE_COMMIT = "commit request {who}, long abandoned, arrives"
    # An owner
    SCAN = "owner {who} seals a scan"
    REBUILD = "owner {who} rebuilds a block"
    EFFECT = "owner {who} carries out"
    COMMIT_LANDS = "owner {who} commits, which is applied, but the reply is lost"
    COMMIT_HANGS = "owner {who} commits, which times out and stays on its way"
    FLUSH = "owner {who} flushes"
    # A worker
    DECIDE = "decides what to send"
    INSERT = "inserts: ok"
    STUCK = "inserts: the quorum is not met in time"
    ACKNOWLEDGE = "checks the quorum"
    TASK_LOST = "dies"


FAULTS = frozenset(
    {
        Kind.REBALANCE,
        Kind.CRASH,
        Kind.SESSION_LOST,
        Kind.WINDOW_FULL,
        Kind.WRITER_LOST,
        Kind.COMMIT_LANDS,
        Kind.COMMIT_HANGS,
        Kind.STUCK,
        Kind.TASK_LOST,
    }
)


@dataclass(frozen=True, slots=True)
class Move:
    kind: Kind
    who: int
    stop: int = 0
    held: int = 0
    short: int = 0
    table: int = 0
    part: int = 0


def moves(setting: Setting, world: World, random: Random | None = None) -> Iterator[Move]:
    """Every move enabled in `world`; with `random` only one of an owner's many possible scans."""
    yield from _group_moves(world)
    for i, owner in enumerate(world.owners):
        yield from _owner_moves(setting, world, i, owner)
        if can_scan(owner):
            assert owner.state is not None
            if random is None:
                yield from _scans(setting, i, owner.state)
            else:
                yield from _random_scan(setting, i, owner.state, random)
    for g, grant in enumerate(world.grants):
        yield from _grant_moves(setting, world, g, grant)
    yield from _clickhouse_moves(world)


def _group_moves(world: World) -> Iterator[Move]:
    for i in range(len(world.owners)):
        if world.budget.rebalances:
            yield Move(Kind.REBALANCE, i)
    for r in range(len(world.group.late)):
        yield Move(Kind.LATE_COMMIT, r)


def _clickhouse_moves(world: World) -> Iterator[Move]:
    for number, table in enumerate(world.tables, start=1):
        if table.pending is not None:
            yield Move(Kind.QUORUM_MET, number)
            if world.budget.lost_writers:
                yield Move(Kind.WRITER_LOST, number)
        elif table.hashes and world.budget.full_windows and not is_locked(world, number):
            yield Move(Kind.WINDOW_FULL, number)


def is_locked(world: World, table: int) -> bool:
    return any(grant.locked for grant in world.grants if grant.table == table)


def must_poll(group: Group, i: int, owner: Owner) -> bool:
    return owner.generation != group.generation or owner.member != group.members[i]


def _owner_moves(setting: Setting, world: World, i: int, owner: Owner) -> Iterator[Move]:
    budget = world.budget
    if must_poll(world.group, i, owner):
        yield Move(Kind.POLL, i)
    if budget.crashes and (owner.state or owner.todo or owner.assigned):
        yield Move(Kind.CRASH, i)
    if budget.lost_sessions and any(grant.owner == i for grant in world.grants):
        yield Move(Kind.SESSION_LOST, i)
    if owner.todo:
        yield Move(Kind.EFFECT, i)
        if isinstance(owner.todo[0], Commit) and budget.unknown_commits:
            yield Move(Kind.COMMIT_LANDS, i)
            yield Move(Kind.COMMIT_HANGS, i)
    elif owner.assigned:
        yield Move(Kind.READ, i)
    elif can_scan(owner):
        assert owner.state is not None
        yield from _state_moves(setting, world, i, owner.state)


def _state_moves(setting: Setting, world: World, i: int, state: StreamState) -> Iterator[Move]:
    if step(state, Flush(setting.may_close), world.clock)[1]:
        yield Move(Kind.FLUSH, i)
    request = replays(state, frozenset(setting.log.tables))
    for table, _ in request.blocks if request else ():
        yield Move(Kind.REBUILD, i, table=table)


def can_scan(owner: Owner) -> bool:
    state = owner.state
    return state is not None and not owner.todo and not state.closed and state.committing is None


def _scans(setting: Setting, i: int, state: StreamState) -> Iterator[Move]:
    for held in (0, *setting.log.tables) if setting.may_hold else (0,):
        for stop in stops(setting, scan_request(state, held)):
            for short in (0, *setting.log.tables) if setting.may_cut else (0,):
                yield Move(Kind.SCAN, i, stop=stop, held=held, short=short)


def _random_scan(setting: Setting, i: int, state: StreamState, random: Random) -> Iterator[Move]:
    tables = setting.log.tables
    held = random.choice(tables) if setting.may_hold and random.random() < 0.3 else 0
    short = random.choice(tables) if setting.may_cut and random.random() < 0.3 else 0
    possible = stops(setting, scan_request(state, held))
    if possible:
        yield Move(Kind.SCAN, i, stop=random.choice(possible), held=held, short=short)


def scan_request(state: StreamState, held: int) -> ScanRequest:
    """What the owner would read; a table far behind is caught up by itself when another is held."""
    near = 2 if held and lagging(state, frozenset({held})) else len(state.tables) + 99
    return plan_scan(state, skipped=frozenset({held}), near=near, catch_up=bool(held))


def stops(setting: Setting, request: ScanRequest) -> range:
    """Where the scan may end: anywhere, as long as it finds something new or takes something up."""
    if request.stop is not None:
        return range(request.start + 1, request.stop + 1)
    first = request.position if request.resume else request.position + 1
    return range(max(first, request.start + 1), len(setting.log) + 1)


def _grant_moves(setting: Setting, world: World, g: int, grant: Grant) -> Iterator[Move]:
    table, budget = world.table(grant.table), world.budget
    if grant.phase is Phase.WAITING:
        if not ("lock" in setting.rules and is_locked(world, grant.table)) and (
            table.pending is None or is_trusted(setting, world, grant)
        ):
            yield Move(Kind.DECIDE, g)
    elif grant.phase is Phase.DECIDED:
        parts = new_parts(table, grant.rows, setting.partitions)
        if not parts or table.pending is None:
            yield Move(Kind.INSERT, g)
        if budget.stuck_inserts and table.pending is None:
            for part in range(len(parts)):
                yield Move(Kind.STUCK, g, part=part)
    elif table.pending is None:
        yield Move(Kind.ACKNOWLEDGE, g)
    if budget.lost_tasks and grant.phase is not Phase.ANSWERED and not grant.orphan:
        yield Move(Kind.TASK_LOST, g)


def is_trusted(setting: Setting, world: World, grant: Grant) -> bool:
    """Whether the block is sent without asking what is stored: deduplication will decide."""
    return grant.fresh or "provenance" not in setting.rules or grant.intent.intent_ms == world.clock
