"""Tables whose next message has a schema revision that is not known yet: to read it before that is in vain."""

from __future__ import annotations

from collections.abc import Iterable

from blockhouse_aggregator.gate.messages import TableReport
from blockhouse_aggregator.runtime.tables.catalog import Catalog


class AwaitedRevisions:
    """Of one stream in one epoch."""

    def __init__(self, catalog: Catalog) -> None:
        self._catalog = catalog
        self._awaited: dict[str, int] = {}

    def note(self, tables: Iterable[TableReport]) -> None:
        """Caller: the conversation, after a round."""
        self._awaited |= {table.table: table.waits_for for table in tables if table.waits_for is not None}

    def tables(self) -> frozenset[int]:
        """The ids of tables that wait still; those whose revision has become known wait no more."""
        known = {table: self._catalog.known(table) for table in self._awaited}
        for table, revision in tuple(self._awaited.items()):
            found = known[table]
            if found is not None and found.history.revision(revision) is not None:
                del self._awaited[table]
        return frozenset(found.history.id for table, found in known.items() if found and table in self._awaited)
