"""A table as its owner declares it: one CREATE TABLE statement, read with a ClickHouse grammar.

Pure: it reads SQL and runs none. What it does not understand it refuses by name, for a statement that is only half
understood would make a table that lacks what its author relies on.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

from blockhouse.errors import Permanent
from blockhouse.schema.model import PROVENANCE_COLUMNS, TOPIC_COLUMN, DefaultKind, ServerColumn
from blockhouse.schema.parse import column_type
from blockhouse.schema.statement import split_column, split_create

DIALECT = "clickhouse"
_ENGINE = re.compile(r"(?:Replicated)?((?:Replacing|Summing|Aggregating|VersionedCollapsing|Collapsing)?MergeTree)")
_DATE = re.compile(r"'(?:[^'\\]|\\.)*'|\bDATE\b")
TOPIC_TYPE, COMPACT_TOPIC = "String", "LowCardinality(String)"
"""Types of the topic's column; the second on servers that have it without a setting, for a topic's name and id are the
same in all of a part's rows."""
_PROVENANCE_TYPES = dict(zip(PROVENANCE_COLUMNS, ("String", "UInt32", "UInt64", "UInt32", TOPIC_TYPE), strict=True))
_KEY = re.compile(r"(PARTITION|ORDER)\s+BY\s+(.*)", re.IGNORECASE | re.DOTALL)


@dataclass(frozen=True, slots=True)
class DeclaredColumn:
    """A column and the SQL that declares it, codec and comment included."""

    column: ServerColumn
    sql: str


@dataclass(frozen=True, slots=True)
class Declaration:
    """What a CREATE TABLE statement declares. `sql` of columns, `others` and `clauses` are word for word as written,
    the rest is SQL as the grammar spells it.

    `columns` end with those provenance columns that were not declared. `engine` is the family without `Replicated`,
    `engine_arguments` are without path and replica name. `others` are indexes, constraints and projections; `clauses`
    stand between ENGINE and SETTINGS.
    """

    database: str
    table: str
    columns: tuple[DeclaredColumn, ...]
    others: tuple[str, ...]
    engine: str
    engine_arguments: tuple[str, ...]
    clauses: tuple[str, ...]
    settings: tuple[tuple[str, str], ...]
    partition_by: str = ""
    order_by: str = ""

    @property
    def name(self) -> str:
        return f"{self.database}.{self.table}"

    def with_topic_type(self, type_: str) -> Declaration:
        """The same, with the topic's column of this type unless it is declared."""
        added = DeclaredColumn(*_provenance(TOPIC_COLUMN, TOPIC_TYPE))
        as_typed = DeclaredColumn(*_provenance(TOPIC_COLUMN, type_))
        return replace(self, columns=tuple(as_typed if each == added else each for each in self.columns))


def read_declaration(name: str, sql: str) -> Declaration:
    """The declaration of `database.table`. Raises Permanent naming the table and what is wrong: reason "SyntaxError"
    for what is no CREATE TABLE of this table, "UnsupportedEngine", or "UnsupportedType"."""
    create, schema = _statement(name, sql)
    written = split_create(sql)
    columns, others = [], []
    for node, text in zip(schema.expressions, written.elements, strict=True):
        if isinstance(node, exp.ColumnDef):
            columns.extend(_columns(name, node, text))
        else:
            others.append(text)
    _distinct(name, columns)
    declared = {declared.column.name for declared in columns}
    for provenance, type_ in _PROVENANCE_TYPES.items():
        if provenance not in declared:
            columns.append(DeclaredColumn(*_provenance(provenance, type_)))
    properties = create.args["properties"].expressions if create.args.get("properties") else []
    engine, arguments = _engine(name, properties)
    keys = {match[1].upper(): match[2] for clause in written.clauses if (match := _KEY.fullmatch(clause))}
    database, table = name.split(".", 1)
    return Declaration(
        database=database,
        table=table,
        columns=tuple(columns),
        others=tuple(others),
        engine=engine,
        engine_arguments=arguments,
        clauses=tuple(clause for clause in written.clauses if not clause.upper().startswith(("ENGINE", "SETTINGS"))),
        settings=_settings(properties),
        partition_by=normalised(keys.get("PARTITION", "")),
        order_by=normalised(keys.get("ORDER", "")),
    )


def _provenance(name: str, type_: str) -> tuple[ServerColumn, str]:
    return ServerColumn(name=name, type=type_), f"`{name}` {type_}"


def normalised(expression: str, *, without_cast: bool = False) -> str:
    """An expression or key in one spelling, so that what people write and what servers answer can be compared; the
    empty key, `tuple()`, is the empty string. `without_cast` takes what is cast for the cast."""
    if not expression:
        return ""
    try:
        node = sqlglot.parse_one(expression, dialect=DIALECT)
    except SqlglotError:
        return expression
    while isinstance(node, exp.Paren | exp.Tuple) and len(node.expressions or [node.this]) == 1:
        node = node.expressions[0] if node.expressions else node.this
    if without_cast and isinstance(node, exp.Cast):
        node = node.this
    text = str(node.sql(DIALECT))
    return "" if text in ("tuple()", "()") else text


def _statement(name: str, sql: str) -> tuple[exp.Create, exp.Schema]:
    try:
        statements = [statement for statement in sqlglot.parse(sql, dialect=DIALECT) if statement is not None]
    except SqlglotError as error:
        raise _refused(name, f"its DDL cannot be read: {_first_line(error)}") from error
    if len(statements) != 1 or not isinstance(statements[0], exp.Create) or statements[0].kind != "TABLE":
        raise _refused(name, "its DDL must be one CREATE TABLE statement")
    create = statements[0]
    if not isinstance(create.this, exp.Schema) or create.expression is not None:
        raise _refused(name, "its DDL must list the columns (CREATE TABLE ... AS is not supported)")
    spelled = ".".join(part.name for part in create.this.this.parts)
    if spelled not in (name, name.split(".", 1)[1]):
        raise _refused(name, f"its DDL creates {spelled}")
    return create, create.this


def _columns(table: str, node: exp.ColumnDef, text: str) -> list[DeclaredColumn]:
    """The column as the server will list it: Nested(a A, b B) is two columns `n.a Array(A)` and `n.b Array(B)`."""
    understood = (
        exp.DefaultColumnConstraint,
        exp.ComputedColumnConstraint,
        exp.EphemeralColumnConstraint,
        exp.CompressColumnConstraint,
        exp.CommentColumnConstraint,
    )
    for constraint in (c.kind for c in node.constraints):
        if not isinstance(constraint, understood):
            raise _refused(table, f"column {node.name}: {constraint.sql(DIALECT)} is not understood")
    if node.kind is None:
        raise _refused(table, f"column {node.name} has no type; give it one, it must not follow from a DEFAULT")
    parts = split_column(text)
    kind = DefaultKind(parts.kind)
    if node.kind.this is exp.DataType.Type.NESTED:
        inner = [(f"{node.name}.{part.name}", part.kind.sql(DIALECT)) for part in node.kind.expressions]
        columns = [ServerColumn(name=name, type=f"Array({_date(type_)})") for name, type_ in inner]
        declared = [DeclaredColumn(column, f"`{column.name}` {column.type}") for column in columns]
    else:
        column = ServerColumn(name=node.name, type=parts.type, default_kind=kind, default_expression=parts.expression)
        declared = [DeclaredColumn(column, text)]
    if kind.insertable:
        for each in declared:
            column_type(table, each.column)
    return declared


def _engine(table: str, properties: list[exp.Expression]) -> tuple[str, tuple[str, ...]]:
    node = next((node for node in properties if isinstance(node, exp.EngineProperty)), None)
    if node is None:
        raise Permanent(f"table {table}: its DDL names no ENGINE: use MergeTree", reason="UnsupportedEngine")
    text = node.this.name if isinstance(node.this, exp.Anonymous | exp.Var | exp.Identifier) else node.this.sql(DIALECT)
    family = _ENGINE.fullmatch(text)
    if family is None:
        raise Permanent(
            f"table {table}: engine {text} cannot be loaded exactly once: use one of the MergeTree family",
            reason="UnsupportedEngine",
        )
    arguments = [argument.sql(DIALECT) for argument in node.this.expressions]
    if text.startswith("Replicated") and arguments:
        arguments = arguments[2:]  # the path and the replica's name, which are ours to give
    return family[1], tuple(arguments)


def _settings(properties: list[exp.Expression]) -> tuple[tuple[str, str], ...]:
    found = next((node for node in properties if isinstance(node, exp.SettingsProperty)), None)
    return tuple((n.this.sql(DIALECT), n.expression.sql(DIALECT)) for n in found.expressions) if found else ()


def _distinct(table: str, columns: list[DeclaredColumn]) -> None:
    names = [declared.column.name for declared in columns]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise _refused(table, f"its DDL declares {', '.join(twice)} twice")


def _date(text: str) -> str:
    """The grammar spells Date in capitals, which servers do not."""
    return _DATE.sub(lambda match: "Date" if match[0] == "DATE" else match[0], text)


def _first_line(error: SqlglotError) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", str(error)).strip().splitlines()[0]


def _refused(table: str, why: str) -> Permanent:
    return Permanent(f"table {table}: {why}", reason="SyntaxError")
