"""The column list of `INSERT INTO table (a, b) VALUES (?, ?)`: all that format `nucolumnar` has about a row's
columns."""

from __future__ import annotations

import re

_NAME = r"(?:[A-Za-z_]\w*|`(?:[^`\\]|\\.)*`|\"(?:[^\"\\]|\\.)*\")"
_DOTTED = rf"{_NAME}(?:\s*\.\s*{_NAME})*"
_INSERT = re.compile(
    rf"\s*insert\s+into\s+(?:table\s+)?{_DOTTED}\s*(?:\((?P<columns>\s*{_DOTTED}\s*(?:,\s*{_DOTTED}\s*)*)\))?\s*values\b.*",
    re.IGNORECASE | re.DOTALL,
)
_QUOTED = re.compile(_NAME)
_LONGEST = 1 << 20


def columns_of(sql: bytes) -> tuple[str, ...] | None:
    """Names in the order of the values; None when the statement names none. Raises ValueError for anything else."""
    try:
        text = sql.decode()
    except UnicodeDecodeError as error:
        raise ValueError("the statement is not UTF-8") from error
    found = _INSERT.fullmatch(text) if len(text) <= _LONGEST else None
    if found is None:
        raise ValueError(f"not INSERT INTO ... VALUES: {text[:80]!r}")
    if found["columns"] is None:
        return None
    names = tuple(_plain(part) for part in re.findall(_DOTTED, found["columns"]))
    if len(set(names)) != len(names):
        raise ValueError("a column is named twice")
    return names


def _plain(name: str) -> str:
    """`n`.`a` and n.a are both the column n.a."""
    parts = [re.sub(r"\\(.)", r"\1", part[1:-1]) if part[0] in '`"' else part for part in _QUOTED.findall(name)]
    return ".".join(parts)
