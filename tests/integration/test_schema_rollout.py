"""Columns are added to a table under load by the operator's own decisions, on real servers: every row once, whoever
sent it by which revision."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.stack import Stack
from tests.integration.runtime_pipeline import Loading, eventually, healed, loading
from tests.integration.schema_operator import SchemaOperator

pytestmark = pytest.mark.integration

ENGINE = "ENGINE = MergeTree ORDER BY id"


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    with loading(running_stack, tmp_path_factory.mktemp("rollout"), "rollout") as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed(running) as found:
        yield found


def ddl(table: str, extra: str = "") -> str:
    return f"CREATE TABLE {table} (id UInt64, text String{extra}) {ENGINE}"


def declared(pipeline: Loading, *tables: str, forgetful: bool = False) -> SchemaOperator:
    """An operator that has created the tables; their first revision is known to the feed."""
    operator = SchemaOperator(pipeline.pipeline, {table: ddl(table) for table in tables}, forgetful=forgetful)
    operator.run()
    for table in tables:
        pipeline.feed.record(table.partition(".")[2])
    return operator


def wrong(pipeline: Loading, table: str, condition: str) -> list[int]:
    """On each replica, how many rows the condition holds for."""
    sql = f"SELECT count() FROM {table} WHERE {condition}"
    return [server.execute(sql)[0][0] for server in pipeline.stack.clickhouse.values()]


@pytest.mark.parametrize("forgetful", [False, True], ids=["one-operator", "killed-after-every-step"])
def test_two_columns_are_added_under_load(pipeline: Loading, forgetful: bool) -> None:
    table, other = (f"default.{name}_{int(forgetful)}" for name in ("changed", "other"))
    operator = declared(pipeline, table, other, forgetful=forgetful)
    with pipeline.feed.flowing(table, other):
        assert eventually(lambda: all(wrong(pipeline, table, "1")))
        operator.ddl[table] = ddl(table, ", seven UInt32 DEFAULT 7, loud String DEFAULT upper(text)")
        statuses = operator.run()
        assert statuses[table].revision == statuses[other].revision + 1
        pipeline.feed.mix_revisions(table)
        before = pipeline.feed.delivered
        assert eventually(lambda: pipeline.feed.delivered > before + 200)
    pipeline.settle(table, other)
    assert wrong(pipeline, table, "loud != upper(text)") == [0, 0]
    states = [status.message.split(" ")[0] for _, status in operator.history if status.name == table]
    assert [s for s in states if s in ("holding", "adding", "releasing")] == ["holding", "adding", "releasing"]


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda t: f"CREATE TABLE {t} (id UInt64) {ENGINE}", "column text is on the server and not in the DDL"),
        (lambda t: ddl(t).replace("text String", "text UInt8"), "column text is String on the server and UInt8"),
        (lambda t: ddl(t, ", at DateTime DEFAULT rand()"), "rand()"),
        (lambda t: ddl(t).replace("text String", "text String("), "cannot be read"),
        (lambda t: ddl(t).replace("MergeTree", "SummingMergeTree"), "the engine is MergeTree on the server"),
    ],
    ids=["dropped", "type", "default", "syntax", "engine"],
)
def test_a_bad_change_is_refused_before_anything_is_touched(pipeline: Loading, change: object, says: str) -> None:
    table = "default.never_changed"
    operator = declared(pipeline, table)
    columns = "SELECT name, type FROM system.columns WHERE database = 'default' AND table = 'never_changed'"
    before = [server.execute(columns) for server in pipeline.stack.clickhouse.values()]
    operator.ddl[table] = change(table)  # type: ignore[operator]
    status = operator.run(("SchemaMismatch",))[table]
    assert says in status.message
    assert [server.execute(columns) for server in pipeline.stack.clickhouse.values()] == before
    pipeline.feed.send(table, 3)
    pipeline.settle(table)


def test_a_replica_that_is_down_holds_the_change_up_and_nothing_else(pipeline: Loading) -> None:
    table = "default.waiting_for_all"
    operator = declared(pipeline, table)
    down = pipeline.aggregators[1]
    down.kill()
    operator.ddl[table] = ddl(table, ", more UInt8")
    with pytest.raises(AssertionError, match=f"waiting for replica {down.replica}"):
        operator.run(within=10)
    pipeline.feed.send(table, 3)
    pipeline.wait("the others go on", lambda: min(wrong(pipeline, table, "1")) > 0)
    pipeline.heal()
    operator.run()
    pipeline.settle(table)
