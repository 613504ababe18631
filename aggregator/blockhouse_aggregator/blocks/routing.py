"""Which table a message is for: its headers, read once per distinct combination."""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse_aggregator.kafka.headers import Headers, Unreadable
from blockhouse_aggregator.wire.formats import Format

_REMEMBERED = 4096


@dataclass(frozen=True, slots=True)
class Route:
    """Where a message goes: `table` as `database.table`, `revision` its schema revision (0: whatever is current)."""

    table: str
    revision: int
    form: Format = Format.ROWS


@dataclass(frozen=True, slots=True)
class Misrouted:
    """A message that can be put into no table; `table` is empty when it names none."""

    table: str
    reason: str


class Router:
    """Headers to routes, remembered. Producers send few combinations; one that adds unique headers only costs time."""

    def __init__(self, database: str, default_format: Format = Format.ROWS) -> None:
        self._database = database
        self._default = default_format
        self._known: dict[tuple[tuple[str, bytes | None], ...], Route | Misrouted] = {}

    def route(self, headers: Headers | Unreadable) -> Route | Misrouted:
        """Where a message with these headers goes, or why nowhere. Never raises."""
        if isinstance(headers, Unreadable):
            return Misrouted("", "BadHeaders")
        key = tuple(headers)
        found = self._known.get(key)
        if found is None:
            if len(self._known) >= _REMEMBERED:
                self._known.clear()
            found = self._known[key] = self._read(dict(key))
        return found

    def _read(self, headers: dict[str, bytes | None]) -> Route | Misrouted:
        name = _text(headers.get("table"))
        if not name:
            return Misrouted("", "NoTableHeader")
        table = name if "." in name else f"{self._database}.{name}"
        try:
            form = Format(_text(headers.get("format")) or self._default)
        except ValueError:
            return Misrouted(table, "UnsupportedFormat")
        if headers.get("schema") is None and not form.needs_schema:
            return Route(table, 0, form)
        revision = _text(headers.get("schema")) or ""
        if not (revision.isascii() and revision.isdigit() and 0 < int(revision) < 1 << 31):
            return Misrouted(table, "NoSchemaHeader")
        return Route(table, int(revision), form)


def _text(value: bytes | None) -> str | None:
    """UTF-8 text of a header; an undecodable one names nothing."""
    try:
        return value.decode() if value is not None else None
    except UnicodeDecodeError:
        return None
