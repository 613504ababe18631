"""A CREATE TABLE statement cut into the pieces its author wrote, word for word.

A grammar that understands SQL also rewrites it, and not always the same: `rand()` of ClickHouse comes back under
another name. What goes to a server must be what the author wrote, so the grammar only locates the pieces.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise

import sqlglot
from sqlglot.tokenizer_core import Token, TokenType

_OPENING = {TokenType.L_PAREN, TokenType.L_BRACKET, TokenType.L_BRACE}
_CLOSING = {TokenType.R_PAREN, TokenType.R_BRACKET, TokenType.R_BRACE}
_DEFAULTS = {"DEFAULT", "MATERIALIZED", "ALIAS", "EPHEMERAL"}
_ATTRIBUTES = {"CODEC", "COMMENT", "TTL"}
_CLAUSES = {"ENGINE", "PARTITION BY", "ORDER BY", "PRIMARY KEY", "SAMPLE", "TTL", "SETTINGS", "COMMENT"}


@dataclass(frozen=True, slots=True)
class CreateTable:
    """`elements` are columns, indexes and constraints; `clauses` begin with their keyword, ENGINE first."""

    elements: tuple[str, ...]
    clauses: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ColumnText:
    """A column's type, and `kind` (DEFAULT, MATERIALIZED, ALIAS, EPHEMERAL or empty) with its expression."""

    type: str
    kind: str
    expression: str


def split_create(sql: str) -> CreateTable:
    """The pieces of a statement that the grammar accepts as CREATE TABLE with a list of columns."""
    tokens = sqlglot.tokenize(sql, dialect="clickhouse")
    depths = list(_depths(tokens))
    opening = next(at for at, depth in enumerate(depths) if depth == 1)
    closing = next(at for at in range(opening + 1, len(tokens)) if depths[at] == 0)
    commas = [at for at in range(opening + 1, closing) if depths[at] == 1 and tokens[at].token_type is TokenType.COMMA]
    bounds = [opening, *commas, closing]
    elements = [_text(sql, tokens[a + 1 : b]) for a, b in pairwise(bounds)]
    rest = range(closing + 1, len(tokens))
    starts = [at for at in rest if depths[at] == 0 and tokens[at].text.upper() in _CLAUSES]
    end = next((at for at in rest if tokens[at].token_type is TokenType.SEMICOLON), len(tokens))
    clauses = [_text(sql, tokens[a:b]) for a, b in zip(starts, [*starts[1:], end], strict=False)]
    return CreateTable(tuple(filter(None, elements)), tuple(clauses))


def split_column(text: str) -> ColumnText:
    """The parts of a column's definition."""
    tokens = sqlglot.tokenize(text, dialect="clickhouse")
    depths = list(_depths(tokens))
    words = [
        (at, token.text.upper())
        for at, token in enumerate(tokens)
        if at and depths[at] == 0 and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
    ]
    kind_at, kind = next(((at, word) for at, word in words if word in _DEFAULTS), (len(tokens), ""))
    # Attributes come after type and default; a column or function of such a name in the default has an operator first.
    end = next((at for at, word in words if word in _ATTRIBUTES and at > 1), len(tokens))
    return ColumnText(
        type=_text(text, tokens[1 : min(kind_at, end)]), kind=kind, expression=_text(text, tokens[kind_at + 1 : end])
    )


def _depths(tokens: Sequence[Token]) -> Iterator[int]:
    """How many brackets are open after each token."""
    depth = 0
    for token in tokens:
        depth += (token.token_type in _OPENING) - (token.token_type in _CLOSING)
        yield depth


def _text(sql: str, tokens: Sequence[Token]) -> str:
    return sql[tokens[0].start : tokens[-1].end + 1] if tokens else ""
