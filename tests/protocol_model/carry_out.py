"""What a move does. The owners' part is the product's own `step`, `take_over`, `schedule` and `seal`."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from blockhouse_aggregator.protocol.events import (
    Alarm,
    Commit,
    CommitRefused,
    CommitSucceeded,
    CommitUnknown,
    Event,
    Flush,
    Insert,
    InsertFailed,
    Rebuild,
    Rebuilt,
    Rejoin,
    Scanned,
    Stored,
)
from blockhouse_aggregator.protocol.state import Stage
from blockhouse_aggregator.protocol.step import step
from blockhouse_aggregator.protocol.takeover import Facts, Start, take_over
from tests.protocol_model import clickhouse, log
from tests.protocol_model.moves import Kind, Move, is_trusted, must_poll, scan_request
from tests.protocol_model.world import Budget, Grant, Owner, Phase, Request, Setting, Table, World


class Stopped(AssertionError):
    """`take_over` refused a stream nothing abnormal has happened to."""


def carry_out(setting: Setting, world: World, move: Move) -> World:
    """The world after `move`, which must be enabled."""
    return _MOVES[move.kind](setting, world, move)


# --- parts of the world -------------------------------------------------------------------------------------


def _with_owner(world: World, i: int, owner: Owner) -> World:
    return world._replace(owners=(*world.owners[:i], owner, *world.owners[i + 1 :]))


def _with_table(world: World, number: int, table: Table) -> World:
    return world._replace(tables=(*world.tables[: number - 1], table, *world.tables[number:]))


def _with_grants(world: World, grants: list[Grant]) -> World:
    def order(grant: Grant) -> tuple[object, ...]:
        return (grant.owner, grant.table, grant.rows, grant.intent.begin, grant.orphan, grant.fresh, grant.phase)

    return world._replace(grants=tuple(sorted(grants, key=order)))


def _without_grant(world: World, g: int) -> World:
    return world._replace(grants=world.grants[:g] + world.grants[g + 1 :])


def _spend(budget: Budget, **less: int) -> Budget:
    return budget._replace(**{name: getattr(budget, name) - by for name, by in less.items()})


def _forgotten(world: World, i: int) -> World:
    """The driver of owner i forgets its state: the grants live on, but nobody hears of them any more."""
    return _with_grants(world, [g._replace(orphan=True) if g.owner == i else g for g in world.grants])


# --- owners -------------------------------------------------------------------------------------------------


def _tell(setting: Setting, world: World, i: int, event: Event) -> World:
    """The owner's state machine takes the event; its effects are queued, to be carried out one by one."""
    owner = world.owners[i]
    if owner.state is None:
        return world
    state, effects = step(owner.state, event, world.clock)
    queued = tuple(effect for effect in effects if not isinstance(effect, Alarm))
    world = _with_owner(world, i, owner._replace(state=state, todo=owner.todo + queued))
    if "intent-first" not in setting.rules and isinstance(event, Scanned):
        for table in state.in_flight:
            if table.block is not None and table.block.stage is Stage.SEALED:
                world = _grant(setting, world, i, Insert(table.table, table.block.intent, fresh=True))
    return world if setting.fine_effects else _drain(setting, world, i)


def _drain(setting: Setting, world: World, i: int) -> World:
    """Carry out at once what no crash can make worse: a granted insert need never happen."""
    while (todo := world.owners[i].todo) and not isinstance(todo[0], Commit):
        world = _effect(setting, world, Move(Kind.EFFECT, i))
    return world


def _poll(setting: Setting, world: World, move: Move) -> World:
    i, group = move.who, world.group
    owner = world.owners[i]._replace(generation=group.generation)
    kept = group.owner == i and world.owners[i].generation >= group.since and owner.state is not None
    members = (*group.members[:i], owner.member, *group.members[i + 1 :])
    world = world._replace(group=group._replace(members=members))
    if kept or ("epoch" not in setting.rules and owner.state is not None):
        return _with_owner(world, i, owner)
    owner = owner._replace(state=None, todo=(), assigned=group.owner == i)
    return _assigned(setting, _forgotten(_with_owner(world, i, owner), i), i)


def _assigned(setting: Setting, world: World, i: int) -> World:
    return world if setting.fine_reads or not world.owners[i].assigned else _read(setting, world, Move(Kind.READ, i))


def _read(setting: Setting, world: World, move: Move) -> World:
    i, metadata = move.who, world.group.metadata
    facts = Facts(
        offset=metadata.committed_offset if metadata else None,
        metadata=metadata,
        unreadable="",
        log_begin=0,
        log_end=len(setting.log),
        topic_id="T",
        compacted=False,
        marker_topic_id="T" if metadata else None,
    )
    start = take_over(facts, replica="r", epoch=0, now_ms=world.clock)
    if not isinstance(start, Start):
        raise Stopped(f"{start.reason}: {start.message}")
    state = start.state if "confirm" in setting.rules else replace(start.state, confirmed=True)
    return _with_owner(world, i, world.owners[i]._replace(state=state, assigned=False))


def _scan(setting: Setting, world: World, move: Move) -> World:
    state = world.owners[move.who].state
    assert state is not None
    request = scan_request(state, move.held)
    report, dead = log.scan(setting.log, request, move.stop, move.short or None)
    world = world._replace(dead_letters=world.dead_letters | set(dead))
    resumed = frozenset(table for table, _ in request.resume)
    return _tell(setting, world, move.who, Scanned(report, resumed))


def _rebuild(setting: Setting, world: World, move: Move) -> World:
    state = world.owners[move.who].state
    assert state is not None
    block = state.table(move.table).block
    assert block is not None
    return _tell(setting, world, move.who, Rebuilt(move.table, log.rebuild(setting.log, move.table, block.intent)))


def _flush(setting: Setting, world: World, move: Move) -> World:
    return _tell(setting, world, move.who, Flush(setting.may_close))


def _effect(setting: Setting, world: World, move: Move) -> World:
    i = move.who
    effect, *rest = world.owners[i].todo
    world = _with_owner(world, i, world.owners[i]._replace(todo=tuple(rest)))
    match effect:
        case Commit():
            return _commit(setting, world, i, effect)
        case Insert():
            return _grant(setting, world, i, effect)
        case Rebuild():
            # Refused for its generation, it knows that it has to poll first: the poll says whether it reads again.
            again = effect.reason != "IllegalGeneration" or not must_poll(world.group, i, world.owners[i])
            owner = world.owners[i]._replace(state=None, todo=(), assigned=again)
            return _assigned(setting, _forgotten(_with_owner(world, i, owner), i), i)
        case Rejoin():
            return _rejoin(setting, world, i)
        case Alarm():
            return world


def _rejoin(setting: Setting, world: World, i: int) -> World:
    owner, group = world.owners[i]._replace(state=None, todo=(), assigned=True), world.group
    if "rejoin" in setting.rules:
        generation, member = group.generation + 1, owner.member + 1
        members = (*group.members[:i], member, *group.members[i + 1 :])
        since = generation if group.owner == i else group.since
        world = world._replace(group=group._replace(generation=generation, since=since, members=members))
        owner = owner._replace(generation=generation, member=member, assigned=group.owner == i)
    return _assigned(setting, _forgotten(_with_owner(world, i, owner), i), i)


def _commit(setting: Setting, world: World, i: int, effect: Commit) -> World:
    metadata = effect.metadata
    request = Request(i, world.owners[i].member, world.owners[i].generation, metadata)
    if len(metadata.tables) > setting.room and "limit" in setting.rules:
        return _tell(setting, world, i, CommitRefused(metadata.seq, "MetadataFull"))
    if not world.group.accepts(request):
        return _tell(setting, world, i, CommitRefused(metadata.seq, "IllegalGeneration"))
    return _tell(setting, _apply(setting, world, request), i, CommitSucceeded(metadata.seq))


def _apply(setting: Setting, world: World, request: Request) -> World:
    kept = replace(request.metadata, tables=request.metadata.tables[: setting.room])
    return world._replace(group=world.group._replace(metadata=kept))


def _commit_of_unknown_fate(setting: Setting, world: World, move: Move) -> World:
    i = move.who
    owner = world.owners[i]
    effect = owner.todo[0]
    assert isinstance(effect, Commit)
    request = Request(i, owner.member, owner.generation, effect.metadata)
    world = _with_owner(world, i, owner._replace(todo=owner.todo[1:]))
    world = world._replace(budget=_spend(world.budget, unknown_commits=1))
    if len(request.metadata.tables) <= setting.room and world.group.accepts(request):
        if move.kind is Kind.COMMIT_LANDS:
            world = _apply(setting, world, request)
        else:
            world = world._replace(group=world.group._replace(late=(*world.group.late, request)))
    return _tell(setting, world, i, CommitUnknown(effect.metadata.seq))


# --- surroundings -------------------------------------------------------------------------------------------


def _rebalance(_: Setting, world: World, move: Move) -> World:
    group = world.group
    generation = group.generation + 1
    since = group.since if move.who == group.owner else generation
    group = group._replace(generation=generation, since=since, owner=move.who)
    return world._replace(group=group, budget=_spend(world.budget, rebalances=1))


def _late_commit(setting: Setting, world: World, move: Move) -> World:
    late = world.group.late
    request = late[move.who]
    world = world._replace(group=world.group._replace(late=late[: move.who] + late[move.who + 1 :]))
    return _apply(setting, world, request) if world.group.accepts(request) else world


def _crash(_: Setting, world: World, move: Move) -> World:
    again = Owner(member=world.owners[move.who].member + 1)
    world = world._replace(budget=_spend(world.budget, crashes=1))
    return _forgotten(_with_owner(world, move.who, again), move.who)


def _session_lost(setting: Setting, world: World, move: Move) -> World:
    world = world._replace(budget=_spend(world.budget, lost_sessions=1))
    if "lifetime" in setting.rules:
        return _expire(setting, world, lambda grant: grant.owner == move.who)
    return _with_grants(world, [g._replace(locked=g.locked and g.owner != move.who) for g in world.grants])


def _window_full(setting: Setting, world: World, move: Move) -> World:
    table = world.table(move.who)._replace(hashes=frozenset())
    world = _with_table(world, move.who, table)._replace(clock=world.clock + 1)
    world = world._replace(budget=_spend(world.budget, full_windows=1))
    if "lifetime" in setting.rules:
        return _expire(setting, world, lambda g: g.table == move.who and g.phase is Phase.WAITING)
    return world


def _expire(setting: Setting, world: World, dies: Callable[[Grant], bool]) -> World:
    dead = [grant for grant in world.grants if dies(grant)]
    world = _with_grants(world, [grant for grant in world.grants if not dies(grant)])
    for grant in dead:
        world = _answer(setting, world, grant, stored=False)
    return world


def _quorum_met(_: Setting, world: World, move: Move) -> World:
    return _with_table(world, move.who, clickhouse.meet_quorum(world.table(move.who)))


def _writer_lost(_: Setting, world: World, move: Move) -> World:
    world = world._replace(budget=_spend(world.budget, lost_writers=1))
    return _with_table(world, move.who, clickhouse.lose_writer(world.table(move.who)))


# --- workers ------------------------------------------------------------------------------------------------


def _grant(setting: Setting, world: World, i: int, effect: Insert) -> World:
    end = effect.intent.end if effect.fresh or "boundary" in setting.rules else len(setting.log) - 1
    rows = setting.log.rows(effect.table, effect.intent.begin, end)
    # An owner may have been frozen between the commit and this grant: an old intent is not fresh any more.
    fresh = effect.fresh and (effect.intent.intent_ms == world.clock or "lifetime" not in setting.rules)
    return _with_grants(world, [*world.grants, Grant(i, effect.table, effect.intent, fresh, rows)])


def _answer(setting: Setting, world: World, grant: Grant, *, stored: bool) -> World:
    """Tell the owner, unless it has forgotten the grant."""
    if grant.orphan:
        return world
    kind = Stored if stored else InsertFailed
    return _tell(setting, world, grant.owner, kind(grant.table, grant.intent.begin, grant.intent.end))


def _changed(world: World, g: int, grant: Grant) -> World:
    return _with_grants(world, [*world.grants[:g], grant, *world.grants[g + 1 :]])


def _decide(setting: Setting, world: World, move: Move) -> World:
    grant = world.grants[move.who]
    table = world.table(grant.table)
    decided = grant._replace(phase=Phase.DECIDED, locked="lock" in setting.rules, failed_before=table.failed)
    if is_trusted(setting, world, grant):
        return _decided(setting, world, move.who, decided)
    present = set(table.stored)
    missing = tuple(row for row in grant.rows if row not in present)
    if not missing:
        return _answer(setting, _without_grant(world, move.who), grant, stored=True)
    return _decided(setting, world, move.who, decided._replace(rows=missing))


def _decided(setting: Setting, world: World, g: int, grant: Grant) -> World:
    world = _changed(world, g, grant)
    if setting.fine_inserts or world.budget.stuck_inserts or world.table(grant.table).pending is not None:
        return world
    return _insert(setting, world, Move(Kind.INSERT, world.grants.index(grant)))


def _insert(setting: Setting, world: World, move: Move) -> World:
    grant = world.grants[move.who]
    table = world.table(grant.table)
    parts = clickhouse.new_parts(table, grant.rows, setting.partitions)
    world = _with_table(world, grant.table, clickhouse.write(table, parts))
    certain = not setting.fine_inserts and world.table(grant.table).pending is None
    if grant.fresh or grant.orphan or certain or "ack" not in setting.rules:
        return _answer(setting, _without_grant(world, move.who), grant, stored=True)
    return _changed(world, move.who, grant._replace(phase=Phase.ANSWERED))


def _stuck(setting: Setting, world: World, move: Move) -> World:
    grant = world.grants[move.who]
    table = world.table(grant.table)
    parts = clickhouse.new_parts(table, grant.rows, setting.partitions)
    table = clickhouse.begin(clickhouse.write(table, parts[: move.part]), parts[move.part])
    world = _with_table(world, grant.table, table)._replace(budget=_spend(world.budget, stuck_inserts=1))
    return _answer(setting, _without_grant(world, move.who), grant, stored=False)


def _acknowledge(setting: Setting, world: World, move: Move) -> World:
    grant = world.grants[move.who]
    if world.table(grant.table).failed == grant.failed_before:
        return _answer(setting, _without_grant(world, move.who), grant, stored=True)
    again = _grant_again(setting, grant)
    return _changed(world, move.who, again)


def _grant_again(setting: Setting, grant: Grant) -> Grant:
    rows = setting.log.rows(grant.table, grant.intent.begin, grant.intent.end)
    return grant._replace(phase=Phase.WAITING, locked=False, rows=rows)


def _task_lost(setting: Setting, world: World, move: Move) -> World:
    grant = world.grants[move.who]
    world = _without_grant(world, move.who)._replace(budget=_spend(world.budget, lost_tasks=1))
    return _answer(setting, world, grant, stored=False)


_MOVES: dict[Kind, Callable[[Setting, World, Move], World]] = {
    Kind.REBALANCE: _rebalance,
    Kind.POLL: _poll,
    Kind.READ: _read,
    Kind.CRASH: _crash,
    Kind.SESSION_LOST: _session_lost,
    Kind.WINDOW_FULL: _window_full,
    Kind.QUORUM_MET: _quorum_met,
    Kind.WRITER_LOST: _writer_lost,
    Kind.LATE_COMMIT: _late_commit,
    Kind.SCAN: _scan,
    Kind.REBUILD: _rebuild,
    Kind.EFFECT: _effect,
    Kind.COMMIT_LANDS: _commit_of_unknown_fate,
    Kind.COMMIT_HANGS: _commit_of_unknown_fate,
    Kind.FLUSH: _flush,
    Kind.DECIDE: _decide,
    Kind.INSERT: _insert,
    Kind.STUCK: _stuck,
    Kind.ACKNOWLEDGE: _acknowledge,
    Kind.TASK_LOST: _task_lost,
}
