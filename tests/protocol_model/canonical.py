"""Worlds that differ only in numbers that are never compared are one world: this keeps explorations small.

It may only forget what cannot matter: sequence numbers and generations are kept relative, a request that can never be
accepted is dropped, and so is a hash that no recorded or granted block can meet again (which can only add duplicates).
"""

from __future__ import annotations

from dataclasses import replace

from blockhouse.metadata.model import Metadata
from blockhouse_aggregator.protocol.events import Commit, Effect
from blockhouse_aggregator.protocol.state import StreamState
from tests.protocol_model.world import Grant, Group, Owner, Request, Table, World


def canonical(world: World) -> World:
    """The representative of all worlds with the same future as `world`."""
    group = world.group
    shift = group.metadata.seq - 1 if group.metadata else 0
    late = tuple(_request(request, shift) for request in group.late if group.accepts(request))
    owners = tuple(_owner(group, i, owner, shift) for i, owner in enumerate(world.owners))
    group = Group(
        generation=2,
        since=2 if group.since == group.generation else 1,
        owner=group.owner,
        members=(1,) * len(owners),
        metadata=_numbered(group.metadata, shift) if group.metadata else None,
        late=late,
    )
    return _without_idle_hashes(world._replace(group=group, owners=owners, grants=_distinct(world.grants)))


def _distinct(grants: tuple[Grant, ...]) -> tuple[Grant, ...]:
    """Of a forgotten grant two copies are as bad as any number: one to be answered "ok", one to come later."""
    return tuple(g for i, g in enumerate(grants) if not (g.orphan and i >= 2 and grants[i - 2] == g))


def _request(request: Request, shift: int) -> Request:
    return request._replace(member=1, generation=2, metadata=_numbered(request.metadata, shift))


def _numbered(metadata: Metadata, shift: int) -> Metadata:
    return replace(metadata, seq=metadata.seq - shift) if shift else metadata


def _owner(group: Group, i: int, owner: Owner, shift: int) -> Owner:
    generation = 2 if owner.generation == group.generation else 1 if owner.generation >= group.since else 0
    member = 1 if owner.member == group.members[i] else 2
    if shift:
        todo = tuple(_effect(effect, shift) for effect in owner.todo)
        return Owner(member, generation, owner.assigned, _state(owner.state, shift) if owner.state else None, todo)
    if (member, generation) == (owner.member, owner.generation):
        return owner
    return owner._replace(member=member, generation=generation)


def _state(state: StreamState, shift: int) -> StreamState:
    return replace(
        state,
        seq=state.seq - shift,
        recorded=_numbered(state.recorded, shift) if state.recorded else None,
        committing=_numbered(state.committing, shift) if state.committing else None,
    )


def _effect(effect: Effect, shift: int) -> Effect:
    return replace(effect, metadata=_numbered(effect.metadata, shift)) if isinstance(effect, Commit) else effect


def _without_idle_hashes(world: World) -> World:
    if not any(table.hashes for table in world.tables):
        return world
    open_ = {(grant.table, grant.intent.begin, grant.intent.end) for grant in world.grants}
    metadata = [world.group.metadata, *(request.metadata for request in world.group.late)]
    for owner in world.owners:
        metadata += [effect.metadata for effect in owner.todo if isinstance(effect, Commit)]
        if owner.state is not None:
            metadata.append(owner.state.recorded)
            open_ |= {(t.table, t.block.intent.begin, t.block.intent.end) for t in owner.state.in_flight if t.block}
    for known in metadata:
        if known is not None:
            open_ |= {(e.table, e.in_flight.begin, e.in_flight.end) for e in known.tables if e.in_flight}
    return world._replace(tables=tuple(_met(table, n, open_) for n, table in enumerate(world.tables, start=1)))


def _met(table: Table, number: int, open_: set[tuple[int, int, int]]) -> Table:
    """The table without the hashes no open block can meet."""
    kept = frozenset(h for h in table.hashes if any(t == number and b <= h[-1] and h[0] <= e for t, b, e in open_))
    return table._replace(hashes=kept) if len(kept) < len(table.hashes) else table
