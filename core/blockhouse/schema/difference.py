"""What a declared table and one that a server has differ in, and the SQL that takes the one to the other.

The only change ever made to a table is one more column: everything else is refused with its exact difference, for it
could lose what is stored or change the meaning of what is on its way. Pure: writes SQL, runs none.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from blockhouse.errors import Permanent
from blockhouse.schema.ddl import COMPACT_TOPIC, TOPIC_TYPE, Declaration, DeclaredColumn, normalised
from blockhouse.schema.defaults import constant_default
from blockhouse.schema.model import PROVENANCE_COLUMNS, TOPIC_COLUMN, Column, DefaultKind, ServerColumn
from blockhouse.schema.parse import parse_type


@dataclass(frozen=True, slots=True)
class FoundTable:
    """A table as a server has it: `engine` and keys as `system.tables` spells them; a key of None is not known."""

    engine: str
    columns: tuple[ServerColumn, ...]
    partition_key: str | None = None
    sorting_key: str | None = None


@dataclass(frozen=True, slots=True)
class Difference:
    """`added` are declared columns the server lacks, in declared order; `refused` names what cannot be changed. `found`
    is the table that was compared."""

    added: tuple[DeclaredColumn, ...] = ()
    refused: tuple[str, ...] = ()
    found: FoundTable | None = field(default=None, compare=False)

    @property
    def none(self) -> bool:
        return not self.added and not self.refused


def compare(declared: Declaration, found: FoundTable) -> Difference:
    """What would have to be done to `found` to make it what is declared."""
    have = {column.name: column for column in found.columns}
    added = tuple(each for each in declared.columns if each.column.name not in have)
    return Difference(added, (*_table(declared, found), *_columns(declared, have)), found)


def create_statement(
    declared: Declaration, *, path: str, replica: str, settings: Sequence[tuple[str, int]] = ()
) -> str:
    """CREATE TABLE of `replica` of a replicated table at `path` in ZooKeeper.

    `settings` are MergeTree settings, such as deduplication windows, that count unless the declaration sets them.
    """
    arguments = ", ".join((f"'{path}'", f"'{replica}'", *declared.engine_arguments))
    own = dict(declared.settings)
    together = own | {name: str(value) for name, value in settings if name not in own}
    lines = ",\n    ".join((*(each.sql for each in declared.columns), *declared.others))
    tail = "".join(f"\n{clause}" for clause in declared.clauses)
    if together:
        tail += "\nSETTINGS " + ", ".join(f"{name} = {value}" for name, value in together.items())
    return (
        f"CREATE TABLE IF NOT EXISTS {_quoted(declared)} (\n    {lines}\n)"
        f"\nENGINE = Replicated{declared.engine}({arguments}){tail}"
    )


def add_columns_statement(declared: Declaration, added: Sequence[DeclaredColumn]) -> str:
    """One ALTER for all of `added`, so that no replica ever has a part of them.

    Each is put after the stored column it is declared behind; one without any goes to the end, for not every server
    knows FIRST.
    """
    return f"ALTER TABLE {_quoted(declared)} " + ", ".join(_add_column(declared, each) for each in added)


def _add_column(declared: Declaration, each: DeclaredColumn) -> str:
    before = declared.columns[: declared.columns.index(each)]
    stored = [other.column.name for other in before if other.column.default_kind.insertable]
    after = f" AFTER `{stored[-1]}`" if stored else ""
    return f"ADD COLUMN {each.sql}{after}"


def _quoted(declared: Declaration) -> str:
    return f"`{declared.database}`.`{declared.table}`"


def _table(declared: Declaration, found: FoundTable) -> Iterator[str]:
    engine = found.engine.removeprefix("Replicated")
    if engine != declared.engine:
        yield f"the engine is {engine} on the server and {declared.engine} in the DDL"
    elif not found.engine.startswith("Replicated"):
        yield f"the table is not replicated on the server (engine {found.engine})"
    keys = (
        ("partition key", declared.partition_by, found.partition_key),
        ("sorting key", declared.order_by, found.sorting_key),
    )
    for what, desired, has in keys:
        if has is not None and (spelled := normalised(f"({has})" if has else "")) != desired:
            yield f"the {what} is {spelled or 'empty'} on the server and {desired or 'empty'} in the DDL"


def _columns(declared: Declaration, have: dict[str, ServerColumn]) -> Iterator[str]:
    desired = {each.column.name: each.column for each in declared.columns}
    for name in (name for name in have if name not in desired and name not in PROVENANCE_COLUMNS):
        yield f"column {name} is on the server and not in the DDL: columns are never dropped"
    for name in (name for name in have if name in desired):
        yield from _column(have[name], desired[name])


def _column(has: ServerColumn, desired: ServerColumn) -> Iterator[str]:
    if not _same_type(has.type, desired.type) and not _topic_of_either_type(has, desired):
        yield f"column {has.name} is {has.type} on the server and {desired.type} in the DDL"
    elif has.default_kind is not desired.default_kind:
        kinds = (has.default_kind or "plain", desired.default_kind or "plain")
        yield f"column {has.name} is {kinds[0]} on the server and {kinds[1]} in the DDL"
    elif not _same_default(has, desired):
        yield (
            f"column {has.name} has {has.default_kind} {has.default_expression} on the server and "
            f"{desired.default_expression} in the DDL"
        )


def _topic_of_either_type(has: ServerColumn, desired: ServerColumn) -> bool:
    """Both hold the same: which one a server got depends on its version when the column was added."""
    return has.name == TOPIC_COLUMN and {has.type, desired.type} == {TOPIC_TYPE, COMPACT_TOPIC}


def _same_type(one: str, other: str) -> bool:
    try:
        return one == other or parse_type(one) == parse_type(other)
    except Permanent:
        return False


def _same_default(has: ServerColumn, desired: ServerColumn) -> bool:
    """Servers spell a constant with the type it was given, as CAST(5, 'UInt8'): compare what they come to."""
    ours, theirs = (normalised(each.default_expression, without_cast=True) for each in (desired, has))
    if ours == theirs:
        return True
    if has.default_kind is not DefaultKind.DEFAULT:
        return False
    try:
        one, other = (constant_default("", Column(**each.model_dump(), field=1)) for each in (has, desired))
    except Permanent:
        return False
    return one == other
