"""Which declaration a table's status states it to equal, and when it stops doing so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse.contract.rollouts import declaration_digest
from blockhouse.errors import Permanent, Retryable
from blockhouse.schema.ddl import COMPACT_TOPIC, TOPIC_TYPE, Declaration
from blockhouse.schema.difference import Difference, compare
from blockhouse.schema.model import Revision, ServerColumn, TableHistory
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.coordination.pauses import Pause
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.process.status import _table
from blockhouse_aggregator.runtime.tables import catalog as catalog_module
from blockhouse_aggregator.runtime.tables.catalog import BELIEVED, Catalog
from blockhouse_aggregator.runtime.tables.hazards import HazardWatch
from blockhouse_aggregator.runtime.tables.schema_rollouts import SchemaRollouts
from tests.unit.runtime.configs import CONFIG
from tests.unit.runtime.test_hazards import SAFE

TABLE = SAFE.full_name
PROVENANCE = (
    ServerColumn(name="_kafka_cluster", type="String"),
    ServerColumn(name="_kafka_partition", type="UInt32"),
    ServerColumn(name="_kafka_offset", type="UInt64"),
    ServerColumn(name="_kafka_row", type="UInt32"),
    ServerColumn(name="_kafka_topic", type="String"),
)
THERE = replace(SAFE, columns=(*SAFE.columns, *PROVENANCE), sorting_key="n")
ALTERED = replace(THERE, columns=(*THERE.columns, ServerColumn(name="by_hand", type="UInt8")))
DDL = "CREATE TABLE t (n UInt32) ENGINE = MergeTree ORDER BY n"
OTHER = "CREATE TABLE t (n UInt32, more UInt8) ENGINE = MergeTree ORDER BY n"


class Replica:
    """The local server with its one table, ZooKeeper, and an aggregator that is asked. `refused`: why the server does
    not describe the table; `makes`: the type of the topic's column in a table that is created here."""

    def __init__(self) -> None:
        self.makes = TOPIC_TYPE
        self.table: ServerTable | None = THERE
        self.prints = 1
        self.unreachable = False
        self.refused: Permanent | None = None
        self.history = TableHistory(id=1, name=TABLE)
        self.pauses: dict[str, Pause] = {}
        ports: Any = SimpleNamespace(shard=self, schemas=self, pauses=SimpleNamespace(all=self.paused))
        self.catalog = Catalog(ports, lambda history, server: None)
        ignored: Any = None
        self.rollouts = SchemaRollouts(
            CONFIG, ignored, self.catalog, self, lambda _: None, lambda _: False, lambda: 1, ignored
        )

    async def paused(self) -> Mapping[str, Pause]:
        return dict(self.pauses)

    async def describe(self, _: str) -> ServerTable | None:
        if self.refused is not None:
            raise self.refused
        return self.table

    async def fingerprints(self) -> Mapping[str, int]:
        if self.unreachable:
            raise Retryable("clickhouse: cannot connect")
        return {TABLE: self.prints} if self.table is not None else {}

    async def ensure_id(self, _: str) -> TableHistory:
        return self.history

    async def identity(self) -> str:
        return "history"

    async def append(self, _name: str, _known: int, revision: Revision) -> TableHistory:
        self.history = self.history.model_copy(update={"revisions": (*self.history.revisions, revision)})
        return self.history

    async def all(self) -> Mapping[str, TableHistory]:
        return {TABLE: self.history}

    async def compared(self, declared: Declaration) -> Difference | None:
        return compare(declared, self.table.definition) if self.table is not None else None

    async def lacking_types(self, *_: object) -> tuple[str, ...]:
        return ()

    async def topic_type(self) -> str:
        return self.makes

    create: Any = None
    add_columns: Any = None

    async def alter(self, table: ServerTable | None) -> None:
        """By hand, and the aggregator's next refresh."""
        self.table = table
        self.prints += 1
        await self.catalog.refresh()

    @property
    def stated(self) -> str:
        known = self.catalog.known(TABLE)
        assert known is not None
        return _table(known, self.catalog, HazardWatch(CONFIG, Figures())).as_declared


@pytest.fixture
async def replica() -> Replica:
    """Its table was found as DDL declares it."""
    here = Replica()
    await here.catalog.start()
    assert not here.stated, "it was never compared"
    gap = await here.rollouts.gap(TABLE, DDL)
    assert (gap.exists, gap.added, gap.refused) == (True, (), ())
    return here


async def test_a_table_that_was_found_as_declared_is_stated_to_be_so(replica: Replica) -> None:
    assert replica.stated == declaration_digest(DDL)
    await replica.catalog.refresh()
    assert replica.stated == declaration_digest(DDL)


async def test_a_table_that_was_altered_by_hand_is_not(replica: Replica) -> None:
    await replica.alter(ALTERED)
    assert replica.stated == ""
    assert (await replica.rollouts.gap(TABLE, DDL)).refused
    assert replica.stated == ""


async def test_a_table_that_changed_in_another_way_is_compared_once_more(replica: Replica) -> None:
    await replica.alter(replace(THERE, materialized_views=("default.v",)))
    assert replica.stated == ""
    await replica.rollouts.gap(TABLE, DDL)
    assert replica.stated == declaration_digest(DDL)


async def test_a_table_that_was_dropped_is_not(replica: Replica) -> None:
    await replica.alter(None)
    assert replica.stated == ""


async def test_another_declaration_that_lacks_something_changes_nothing(replica: Replica) -> None:
    assert (await replica.rollouts.gap(TABLE, OTHER)).added == ("more",)
    assert replica.stated == declaration_digest(DDL)


def with_topic(type_: str) -> ServerTable:
    columns = (*THERE.columns[:-1], ServerColumn(name="_kafka_topic", type=type_))
    return replace(THERE, columns=columns)


@pytest.mark.parametrize("makes", [TOPIC_TYPE, COMPACT_TOPIC])
@pytest.mark.parametrize("has", [TOPIC_TYPE, COMPACT_TOPIC])
@pytest.mark.parametrize("topic", ["", ", _kafka_topic String", f", _kafka_topic {COMPACT_TOPIC}"])
async def test_a_column_is_added_whatever_the_type_of_the_topic(has: str, makes: str, topic: str) -> None:
    """A server that is replaced by a later version keeps the column as it is, and would make another one."""
    here = Replica()
    here.table, here.makes = with_topic(has), makes
    await here.catalog.start()

    gap = await here.rollouts.gap(TABLE, OTHER.replace("more UInt8", f"more UInt8{topic}"))

    assert (gap.added, gap.refused) == (("more",), ())
    assert gap.statement.endswith("ADD COLUMN more UInt8 AFTER `n`")


@pytest.mark.parametrize("has", [TOPIC_TYPE, COMPACT_TOPIC])
async def test_a_new_replica_has_the_topic_as_the_shard_has_it(has: str) -> None:
    """A server refuses a replica of a table with another type."""
    here = Replica()
    here.table = with_topic(has)
    await here.catalog.start()
    here.makes = COMPACT_TOPIC if has == TOPIC_TYPE else TOPIC_TYPE
    await here.alter(None)

    gap = await here.rollouts.gap(TABLE, DDL)

    assert (gap.exists, gap.refused) == (False, ())
    assert f"`_kafka_topic` {has}\n" in gap.statement


@pytest.mark.parametrize("makes", [TOPIC_TYPE, COMPACT_TOPIC])
async def test_the_first_replica_of_a_table_has_the_topic_as_its_server_makes_it(makes: str) -> None:
    here = Replica()
    here.table, here.makes = None, makes
    await here.catalog.start()

    assert f"`_kafka_topic` {makes}\n" in (await here.rollouts.gap(TABLE, DDL)).statement


async def test_what_was_compared_after_an_alter_that_was_not_noticed_yet_is_not_stated(replica: Replica) -> None:
    """Else it would be, of the table as it is before the next refresh and may be again after it."""
    replica.table = replace(THERE, columns=(*THERE.columns, ServerColumn(name="more", type="UInt8")))
    assert not (await replica.rollouts.gap(TABLE, OTHER)).added
    assert replica.stated == declaration_digest(DDL)

    replica.prints += 1
    await replica.catalog.refresh()
    assert replica.stated == ""


async def test_a_table_that_a_rollout_pauses_is_not(replica: Replica) -> None:
    """Its columns may be changing."""
    replica.pauses[TABLE] = Pause(rollout="other", since_ms=1)
    await replica.catalog.refresh_pauses()
    assert replica.stated == ""


async def test_a_table_that_the_server_refuses_to_describe_is_not(replica: Replica) -> None:
    replica.refused = Permanent("no right to see it", reason="AccessDenied")
    await replica.alter(THERE)
    assert replica.stated == ""


async def test_it_is_stated_only_as_long_as_the_server_is_read(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where it does not answer, or ZooKeeper does not, an alter would not be noticed."""
    began = catalog_module.loop_time()
    replica.unreachable = True
    for later, stated in ((BELIEVED - 1, declaration_digest(DDL)), (BELIEVED + 1, "")):
        monkeypatch.setattr(catalog_module, "loop_time", lambda now=began + later: now)
        with pytest.raises(Retryable):
            await replica.catalog.refresh()
        assert replica.stated == stated

    replica.unreachable = False
    await replica.catalog.refresh()
    assert replica.stated == declaration_digest(DDL)


async def test_a_change_that_could_not_be_described_yet_is_no_refresh(
    replica: Replica, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server answers which tables have changed, and no more."""

    async def unanswered(_: str) -> ServerTable:
        raise Retryable("zookeeper: unavailable")

    began = catalog_module.loop_time()
    monkeypatch.setattr(replica, "describe", unanswered)
    monkeypatch.setattr(catalog_module, "loop_time", lambda: began + BELIEVED + 1)
    await replica.alter(ALTERED)

    assert replica.stated == ""
