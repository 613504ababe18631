"""A column that an ALTER adds is a revision once every live replica has it; before, nothing is written with it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse.errors import Blocked
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import Revision, ServerColumn, TableHistory
from blockhouse_aggregator.clickhouse.shard_columns import Lacking
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.runtime.tables.arriving_columns import check_arrived
from blockhouse_aggregator.runtime.tables.catalog import Catalog
from tests.unit.runtime.test_hazards import SAFE

TABLE = SAFE.full_name
EXTRA = ServerColumn(name="extra", type="UInt32")
ALTERED = replace(SAFE, columns=(*SAFE.columns, EXTRA))
LATE = Lacking("r2", ("extra",))
HISTORY = TableHistory(id=1, name=TABLE, revisions=(first_revision(SAFE.columns),))


class Shard:
    """The local replica r1, and the schema history."""

    def __init__(self, server: ServerTable) -> None:
        self.server = server
        self.history = HISTORY
        ports: Any = SimpleNamespace(shard=self, schemas=self)
        self.catalog = Catalog(ports, lambda history, server: None)

    async def describe(self, table: str) -> ServerTable:
        return self.server

    async def fingerprints(self) -> Mapping[str, int]:
        return {TABLE: hash(self.server.columns)}

    async def ensure_id(self, table: str) -> TableHistory:
        return self.history

    async def all(self) -> Mapping[str, TableHistory]:
        return {TABLE: self.history}

    async def append(self, name: str, known: int, revision: Revision) -> TableHistory:
        self.history = self.history.model_copy(update={"revisions": (*self.history.revisions, revision)})
        return self.history

    def state(self) -> tuple[int, str]:
        """Revisions that are recorded, and why the table is unavailable."""
        known = self.catalog.known(TABLE)
        assert known is not None
        return len(self.history.revisions), known.unavailable


async def test_an_added_column_is_recorded_only_once_every_live_replica_has_it() -> None:
    shard = Shard(SAFE)
    await shard.catalog.id_of(TABLE)
    assert shard.state() == (1, "")

    shard.server = replace(ALTERED, lacking=(LATE,))
    await shard.catalog.refresh()
    assert shard.state() == (1, "ReplicaLacksColumn"), "r2 could not fetch what r1 would write"
    known = shard.catalog.known(TABLE)
    assert known is not None
    assert "replica r2 lacks column extra" in known.why
    assert "ADD COLUMN" in known.why

    shard.server = ALTERED
    await shard.catalog.refresh_unknown()
    assert shard.state() == (2, "")


async def test_the_replica_that_is_late_is_loaded_without_the_column_meanwhile() -> None:
    shard = Shard(replace(SAFE, lacking=(Lacking("r1", ("extra",)),)))
    await shard.catalog.id_of(TABLE)
    assert shard.state() == (1, "")


def test_a_column_that_is_recorded_already_is_waited_for_as_well() -> None:
    """Another shard has recorded it."""
    recorded = TableHistory(id=1, name=TABLE, revisions=(first_revision(ALTERED.columns),))
    with pytest.raises(Blocked, match="replica r2 lacks column extra, which r1 has") as of_another:
        check_arrived(recorded, replace(ALTERED, lacking=(LATE,)))
    with pytest.raises(Blocked, match="replica r1 lacks column extra, which its shard has") as of_this:
        check_arrived(recorded, replace(SAFE, lacking=(Lacking("r1", ("extra",)),)))
    assert {of_another.value.reason, of_this.value.reason} == {"ReplicaLacksColumn"}


def test_a_column_that_neither_has_yet_is_not_waited_for() -> None:
    check_arrived(HISTORY, replace(SAFE, lacking=(Lacking("r1", ("extra",)), LATE)))
