"""What a worker does with a granted insert: lock and decision, insert, acknowledgement."""

from __future__ import annotations

from tests.protocol_model import clickhouse
from tests.protocol_model.moves import Kind, Move, is_trusted
from tests.protocol_model.owners import answer
from tests.protocol_model.parts import spend, with_grants, with_table, without_grant
from tests.protocol_model.world import Grant, Phase, Setting, World


def _changed(world: World, g: int, grant: Grant) -> World:
    return with_grants(world, [*world.grants[:g], grant, *world.grants[g + 1 :]])


def decide(setting: Setting, world: World, move: Move) -> World:
    grant = world.grants[move.who]
    table = world.table(grant.table)
    decided = grant._replace(phase=Phase.DECIDED, locked="lock" in setting.rules, failed_before=table.failed)
    if is_trusted(setting, world, grant):
        return _decided(setting, world, move.who, decided)
    present = set(table.stored)
    missing = tuple(row for row in grant.rows if row not in present)
    if not missing:
        return answer(setting, without_grant(world, move.who), grant, stored=True)
    return _decided(setting, world, move.who, decided._replace(rows=missing))


def _decided(setting: Setting, world: World, g: int, grant: Grant) -> World:
    world = _changed(world, g, grant)
    if setting.fine_inserts or world.budget.stuck_inserts or world.table(grant.table).pending is not None:
        return world
    return insert(setting, world, Move(Kind.INSERT, world.grants.index(grant)))


def insert(setting: Setting, world: World, move: Move) -> World:
    grant = world.grants[move.who]
    table = world.table(grant.table)
    parts = clickhouse.new_parts(table, grant.rows, setting.partitions)
    world = with_table(world, grant.table, clickhouse.write(table, parts))
    certain = not setting.fine_inserts and world.table(grant.table).pending is None
    if grant.fresh or grant.orphan or certain or "ack" not in setting.rules:
        return answer(setting, without_grant(world, move.who), grant, stored=True)
    return _changed(world, move.who, grant._replace(phase=Phase.ANSWERED))


def stuck(setting: Setting, world: World, move: Move) -> World:
    grant = world.grants[move.who]
    table = world.table(grant.table)
    parts = clickhouse.new_parts(table, grant.rows, setting.partitions)
    table = clickhouse.begin(clickhouse.write(table, parts[: move.part]), parts[move.part])
    world = with_table(world, grant.table, table)._replace(budget=spend(world.budget, stuck_inserts=1))
    return answer(setting, without_grant(world, move.who), grant, stored=False)


def acknowledge(setting: Setting, world: World, move: Move) -> World:
    grant = world.grants[move.who]
    if world.table(grant.table).failed == grant.failed_before:
        return answer(setting, without_grant(world, move.who), grant, stored=True)
    again = _grant_again(setting, grant)
    return _changed(world, move.who, again)


def _grant_again(setting: Setting, grant: Grant) -> Grant:
    rows = setting.log.rows(grant.table, grant.intent.begin, grant.intent.end)
    return grant._replace(phase=Phase.WAITING, locked=False, rows=rows)


def task_lost(setting: Setting, world: World, move: Move) -> World:
    grant = world.grants[move.who]
    world = without_grant(world, move.who)._replace(budget=spend(world.budget, lost_tasks=1))
    return answer(setting, world, grant, stored=False)
