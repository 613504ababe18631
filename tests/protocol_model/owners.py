"""What an owner does: the product's own `step`, `take_over`, `schedule` and `seal`, and the effects they ask for."""

from __future__ import annotations

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
from tests.protocol_model import log
from tests.protocol_model.moves import Kind, Move, must_poll, scan_request
from tests.protocol_model.parts import forgotten, spend, with_grants, with_owner
from tests.protocol_model.world import Grant, Request, Setting, World


class Stopped(AssertionError):
    """`take_over` refused a stream nothing abnormal has happened to."""


def deliver(setting: Setting, world: World, i: int, event: Event) -> World:
    """The owner's state machine takes the event; its effects are queued, to be carried out one by one."""
    owner = world.owners[i]
    if owner.state is None:
        return world
    state, effects = step(owner.state, event, world.clock)
    queued = tuple(effect for effect in effects if not isinstance(effect, Alarm))
    world = with_owner(world, i, owner._replace(state=state, todo=owner.todo + queued))
    if "intent-first" not in setting.rules and isinstance(event, Scanned):
        for table in state.in_flight:
            if table.block is not None and table.block.stage is Stage.SEALED:
                world = _grant(setting, world, i, Insert(table.table, table.block.intent, fresh=True))
    return world if setting.fine_effects else _drain(setting, world, i)


def _drain(setting: Setting, world: World, i: int) -> World:
    """Carry out at once what no crash can make worse: a granted insert need never happen."""
    while (todo := world.owners[i].todo) and not isinstance(todo[0], Commit):
        world = carry_out_effect(setting, world, Move(Kind.EFFECT, i))
    return world


def poll(setting: Setting, world: World, move: Move) -> World:
    i, group = move.who, world.group
    owner = world.owners[i]._replace(generation=group.generation)
    kept = group.owner == i and world.owners[i].generation >= group.since and owner.state is not None
    members = (*group.members[:i], owner.member, *group.members[i + 1 :])
    world = world._replace(group=group._replace(members=members))
    if kept or ("epoch" not in setting.rules and owner.state is not None):
        return with_owner(world, i, owner)
    owner = owner._replace(state=None, todo=(), assigned=group.owner == i)
    return _assigned(setting, forgotten(with_owner(world, i, owner), i), i)


def _assigned(setting: Setting, world: World, i: int) -> World:
    return world if setting.fine_reads or not world.owners[i].assigned else read(setting, world, Move(Kind.READ, i))


def read(setting: Setting, world: World, move: Move) -> World:
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
    return with_owner(world, i, world.owners[i]._replace(state=state, assigned=False))


def scan(setting: Setting, world: World, move: Move) -> World:
    state = world.owners[move.who].state
    assert state is not None
    request = scan_request(state, move.held)
    report, dead = log.scan(setting.log, request, move.stop, move.short or None)
    world = world._replace(dead_letters=world.dead_letters | set(dead))
    resumed = frozenset(table for table, _ in request.resume)
    return deliver(setting, world, move.who, Scanned(report, resumed))


def rebuild(setting: Setting, world: World, move: Move) -> World:
    state = world.owners[move.who].state
    assert state is not None
    block = state.table(move.table).block
    assert block is not None
    return deliver(setting, world, move.who, Rebuilt(move.table, log.rebuild(setting.log, move.table, block.intent)))


def flush(setting: Setting, world: World, move: Move) -> World:
    return deliver(setting, world, move.who, Flush(setting.may_close))


def carry_out_effect(setting: Setting, world: World, move: Move) -> World:
    i = move.who
    effect, *rest = world.owners[i].todo
    world = with_owner(world, i, world.owners[i]._replace(todo=tuple(rest)))
    match effect:
        case Commit():
            return _commit(setting, world, i, effect)
        case Insert():
            return _grant(setting, world, i, effect)
        case Rebuild():
            # Refused for its generation, it knows that it has to poll first: the poll shows whether it reads again.
            again = effect.reason != "IllegalGeneration" or not must_poll(world.group, i, world.owners[i])
            owner = world.owners[i]._replace(state=None, todo=(), assigned=again)
            return _assigned(setting, forgotten(with_owner(world, i, owner), i), i)
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
    return _assigned(setting, forgotten(with_owner(world, i, owner), i), i)


def _commit(setting: Setting, world: World, i: int, effect: Commit) -> World:
    metadata = effect.metadata
    request = Request(i, world.owners[i].member, world.owners[i].generation, metadata)
    if len(metadata.tables) > setting.room and "limit" in setting.rules:
        return deliver(setting, world, i, CommitRefused(metadata.seq, "MetadataFull"))
    if not world.group.accepts(request):
        return deliver(setting, world, i, CommitRefused(metadata.seq, "IllegalGeneration"))
    return deliver(setting, apply(setting, world, request), i, CommitSucceeded(metadata.seq))


def apply(setting: Setting, world: World, request: Request) -> World:
    kept = replace(request.metadata, tables=request.metadata.tables[: setting.room])
    return world._replace(group=world.group._replace(metadata=kept))


def commit_of_unknown_fate(setting: Setting, world: World, move: Move) -> World:
    i = move.who
    owner = world.owners[i]
    effect = owner.todo[0]
    assert isinstance(effect, Commit)
    request = Request(i, owner.member, owner.generation, effect.metadata)
    world = with_owner(world, i, owner._replace(todo=owner.todo[1:]))
    world = world._replace(budget=spend(world.budget, unknown_commits=1))
    if len(request.metadata.tables) <= setting.room and world.group.accepts(request):
        if move.kind is Kind.COMMIT_LANDS:
            world = apply(setting, world, request)
        else:
            world = world._replace(group=world.group._replace(late=(*world.group.late, request)))
    return deliver(setting, world, i, CommitUnknown(effect.metadata.seq))


def _grant(setting: Setting, world: World, i: int, effect: Insert) -> World:
    end = effect.intent.end if effect.fresh or "boundary" in setting.rules else len(setting.log) - 1
    rows = setting.log.rows(effect.table, effect.intent.begin, end)
    # An owner may have been frozen between the commit and this grant: an old intent is not fresh any more.
    fresh = effect.fresh and (effect.intent.intent_ms == world.clock or "lifetime" not in setting.rules)
    return with_grants(world, [*world.grants, Grant(i, effect.table, effect.intent, fresh, rows)])


def answer(setting: Setting, world: World, grant: Grant, *, stored: bool) -> World:
    """Report to the owner, unless it has forgotten the grant."""
    if grant.orphan:
        return world
    kind = Stored if stored else InsertFailed
    return deliver(setting, world, grant.owner, kind(grant.table, grant.intent.begin, grant.intent.end))
