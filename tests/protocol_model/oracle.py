"""What must never be: a row twice, a message passed over, a broken invariant. It judges outcomes, not the code."""

from __future__ import annotations

from blockhouse.metadata.invariants import succession_violations, violations
from blockhouse.metadata.model import Metadata
from blockhouse_aggregator.protocol.events import Insert
from blockhouse_aggregator.protocol.invariants import grant_violations
from tests.protocol_model.moves import Kind, Move
from tests.protocol_model.world import Setting, World


def harm(setting: Setting, world: World) -> str | None:
    """The first harm done to the data, in words."""
    for number, table in enumerate(world.tables, start=1):
        rows = table.stored
        if len(rows) != len(set(rows)):
            twice = sorted({row for row in rows if rows.count(row) > 1})
            return f"DUPLICATE: offsets {twice} are stored twice in table {_name(number)}"
    lost = (
        [o for o in range(world.group.metadata.position) if _is_lost(setting, world, o)] if world.group.metadata else []
    )
    if lost:
        return f"LOSS: the committed metadata passes offsets {lost}, which are stored nowhere"
    return None


def _is_lost(setting: Setting, world: World, offset: int) -> bool:
    log, metadata = setting.log, world.group.metadata
    table = log.table(offset)
    if metadata is None or log.text[offset] == "-" or offset in world.dead_letters:
        return False
    if table is None:
        return True
    if is_open(metadata, table, offset):
        return False
    return not log.good(offset) or offset not in world.table(table).stored


def is_open(metadata: Metadata, table: int, offset: int) -> bool:
    """Whether the next owner would load this message: it is in flight, pending or not scanned."""
    if offset >= metadata.position:
        return True
    entry = next((entry for entry in metadata.tables if entry.table == table), None)
    if entry is None:
        return False
    block = entry.in_flight
    in_flight = block is not None and block.begin <= offset <= block.end
    return in_flight or (entry.cursor is not None and offset >= entry.cursor)


def broken(before: World, move: Move, after: World) -> str | None:
    """The first invariant of `docs/protocol.md` that the move has broken."""
    old, new = before.group.metadata, after.group.metadata
    if new is not None and new is not old:
        found = violations(new) + succession_violations(old, new)
        if found:
            return "; ".join(found)
    if move.kind is Kind.EFFECT:
        owner = before.owners[move.who]
        effect = owner.todo[0]
        if isinstance(effect, Insert) and owner.state is not None:
            return "; ".join(grant_violations(owner.state, [effect])) or None
    return None


def is_complete(setting: Setting, world: World) -> bool:
    """Every message is stored or dead-lettered, and the committed metadata shows it."""
    metadata, log = world.group.metadata, setting.log
    if metadata is None or metadata.position < len(log) or metadata.tables:
        return False
    stored = {row for table in world.tables for row in table.stored}
    needed = {o for o in range(len(log)) if log.table(o) is not None and log.good(o)}
    dead = {o for o in range(len(log)) if log.text[o] == "!" or (log.table(o) is not None and not log.good(o))}
    return stored == needed and world.dead_letters == dead


def _name(table: int) -> str:
    return chr(ord("A") + table - 1)
