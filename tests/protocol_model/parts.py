"""Changing one part of a world: small functions that everything a move does is written with."""

from __future__ import annotations

from tests.protocol_model.world import Budget, Grant, Owner, Table, World


def with_owner(world: World, i: int, owner: Owner) -> World:
    return world._replace(owners=(*world.owners[:i], owner, *world.owners[i + 1 :]))


def with_table(world: World, number: int, table: Table) -> World:
    return world._replace(tables=(*world.tables[: number - 1], table, *world.tables[number:]))


def with_grants(world: World, grants: list[Grant]) -> World:
    def order(grant: Grant) -> tuple[object, ...]:
        return (grant.owner, grant.table, grant.rows, grant.intent.begin, grant.orphan, grant.fresh, grant.phase)

    return world._replace(grants=tuple(sorted(grants, key=order)))


def without_grant(world: World, g: int) -> World:
    return world._replace(grants=world.grants[:g] + world.grants[g + 1 :])


def spend(budget: Budget, **less: int) -> Budget:
    return budget._replace(**{name: getattr(budget, name) - by for name, by in less.items()})


def forgotten(world: World, i: int) -> World:
    """The driver of owner i forgets its state: the grants live on, but no driver hears of them any more."""
    return with_grants(world, [g._replace(orphan=True) if g.owner == i else g for g in world.grants])
