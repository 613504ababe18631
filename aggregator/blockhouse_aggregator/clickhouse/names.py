"""Identifiers in SQL: database, table and column names come from users and are quoted here, never elsewhere."""

from __future__ import annotations

from collections.abc import Iterable


def identifier(name: str) -> str:
    """`name` between backticks, as ClickHouse of any version reads it back."""
    return "`" + name.replace("\\", "\\\\").replace("`", "\\`") + "`"


def qualified(database: str, table: str) -> str:
    """`database.table`, both quoted for SQL."""
    return f"{identifier(database)}.{identifier(table)}"


def identifiers(names: Iterable[str]) -> str:
    return ", ".join(identifier(name) for name in names)
