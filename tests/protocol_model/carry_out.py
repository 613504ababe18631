"""What a move does: the surroundings here, owners and workers in modules of their own."""

from __future__ import annotations

from collections.abc import Callable

from tests.protocol_model import clickhouse, owners, workers
from tests.protocol_model.moves import Kind, Move
from tests.protocol_model.owners import answer, apply
from tests.protocol_model.parts import forgotten, spend, with_grants, with_owner, with_table
from tests.protocol_model.world import Grant, Owner, Phase, Setting, World


def carry_out(setting: Setting, world: World, move: Move) -> World:
    """The world after `move`, which must be enabled."""
    return _MOVES[move.kind](setting, world, move)


def _rebalance(_: Setting, world: World, move: Move) -> World:
    group = world.group
    generation = group.generation + 1
    since = group.since if move.who == group.owner else generation
    group = group._replace(generation=generation, since=since, owner=move.who)
    return world._replace(group=group, budget=spend(world.budget, rebalances=1))


def _late_commit(setting: Setting, world: World, move: Move) -> World:
    late = world.group.late
    request = late[move.who]
    world = world._replace(group=world.group._replace(late=late[: move.who] + late[move.who + 1 :]))
    return apply(setting, world, request) if world.group.accepts(request) else world


def _crash(_: Setting, world: World, move: Move) -> World:
    again = Owner(member=world.owners[move.who].member + 1)
    world = world._replace(budget=spend(world.budget, crashes=1))
    return forgotten(with_owner(world, move.who, again), move.who)


def _session_lost(setting: Setting, world: World, move: Move) -> World:
    world = world._replace(budget=spend(world.budget, lost_sessions=1))
    if "lifetime" in setting.rules:
        return _expire(setting, world, lambda grant: grant.owner == move.who)
    return with_grants(world, [g._replace(locked=g.locked and g.owner != move.who) for g in world.grants])


def _window_full(setting: Setting, world: World, move: Move) -> World:
    table = world.table(move.who)._replace(hashes=frozenset())
    world = with_table(world, move.who, table)._replace(clock=world.clock + 1)
    world = world._replace(budget=spend(world.budget, full_windows=1))
    if "lifetime" in setting.rules:
        return _expire(setting, world, lambda g: g.table == move.who and g.phase is Phase.WAITING)
    return world


def _expire(setting: Setting, world: World, dies: Callable[[Grant], bool]) -> World:
    dead = [grant for grant in world.grants if dies(grant)]
    world = with_grants(world, [grant for grant in world.grants if not dies(grant)])
    for grant in dead:
        world = answer(setting, world, grant, stored=False)
    return world


def _quorum_met(_: Setting, world: World, move: Move) -> World:
    return with_table(world, move.who, clickhouse.meet_quorum(world.table(move.who)))


def _writer_lost(_: Setting, world: World, move: Move) -> World:
    world = world._replace(budget=spend(world.budget, lost_writers=1))
    return with_table(world, move.who, clickhouse.lose_writer(world.table(move.who)))


_MOVES: dict[Kind, Callable[[Setting, World, Move], World]] = {
    Kind.REBALANCE: _rebalance,
    Kind.POLL: owners.poll,
    Kind.READ: owners.read,
    Kind.CRASH: _crash,
    Kind.SESSION_LOST: _session_lost,
    Kind.WINDOW_FULL: _window_full,
    Kind.QUORUM_MET: _quorum_met,
    Kind.WRITER_LOST: _writer_lost,
    Kind.LATE_COMMIT: _late_commit,
    Kind.SCAN: owners.scan,
    Kind.REBUILD: owners.rebuild,
    Kind.EFFECT: owners.carry_out_effect,
    Kind.COMMIT_LANDS: owners.commit_of_unknown_fate,
    Kind.COMMIT_HANGS: owners.commit_of_unknown_fate,
    Kind.FLUSH: owners.flush,
    Kind.DECIDE: workers.decide,
    Kind.INSERT: workers.insert,
    Kind.STUCK: workers.stuck,
    Kind.ACKNOWLEDGE: workers.acknowledge,
    Kind.TASK_LOST: workers.task_lost,
}
