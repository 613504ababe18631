"""Columns are added to a table under load by the operator's own decisions, on real servers: every row once,
whichever producer sent it by which revision."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blockhouse.contract.aggregator import RestartStatus
from blockhouse_operator.api.rollout import ShardRollout
from blockhouse_operator.decide.tables import ROLLOUT
from e2e.kit.supervisor import Supervisor
from e2e.rollouts.plan import requests
from e2e.stack import Stack
from tests.integration.runtime_pipeline import Loading, eventually, healed, loading
from tests.integration.schema_operator import Death, SchemaOperator

pytestmark = [pytest.mark.integration, pytest.mark.long]

ENGINE = "ENGINE = MergeTree ORDER BY id"
TWO_COLUMNS = ", seven UInt32 DEFAULT 7, loud String DEFAULT upper(text)"


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
        operator.change(table, ddl(table, TWO_COLUMNS))
        statuses = operator.run()
        assert statuses[table].revision == statuses[other].revision + 1
        pipeline.feed.mix_revisions(table)
        before = pipeline.feed.delivered
        assert eventually(lambda: pipeline.feed.delivered > before + 200)
    pipeline.settle(table, other)
    assert wrong(pipeline, table, "loud != upper(text)") == [0, 0]
    states = [status.message.split(" ")[0] for status in operator.history if status.name == table]
    assert [s for s in states if s in ("holding", "adding", "releasing")] == ["holding", "adding", "releasing"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda t: f"CREATE TABLE {t} (id UInt64) {ENGINE}", "column text is on the server and not in the DDL"),
        (lambda t: ddl(t).replace("text String", "text UInt8"), "column text is String on the server and UInt8"),
        (lambda t: ddl(t, ", at UInt32 DEFAULT rand()"), "rand()"),
        (lambda t: ddl(t, ", at DateTime DEFAULT now('UTC')"), "now with arguments"),
        (lambda t: ddl(t, ", at DateTime MATERIALIZED now()"), "now"),
        (lambda t: ddl(t).replace("text String", "text String("), "cannot be read"),
        (lambda t: ddl(t).replace("MergeTree", "SummingMergeTree"), "the engine is MergeTree on the server"),
    ],
    ids=["dropped", "type", "default", "now-with-arguments", "now-at-the-server", "syntax", "engine"],
)
def test_a_bad_change_is_refused_before_anything_is_touched(pipeline: Loading, change: object, message: str) -> None:
    table = "default.never_changed"
    operator = declared(pipeline, table)
    columns = "SELECT name, type FROM system.columns WHERE database = 'default' AND table = 'never_changed'"
    before = [server.execute(columns) for server in pipeline.stack.clickhouse.values()]
    operator.change(table, change(table))  # type: ignore[operator]
    status = operator.run(("SchemaMismatch",))[table]
    assert message in status.message
    assert [server.execute(columns) for server in pipeline.stack.clickhouse.values()] == before
    pipeline.feed.send(table, 3)
    pipeline.settle(table)


def test_a_replica_that_is_down_holds_the_change_up_and_nothing_else(pipeline: Loading) -> None:
    table = "default.waiting_for_all"
    operator = declared(pipeline, table)
    down = pipeline.aggregators[1]
    down.kill()
    operator.change(table, ddl(table, ", more UInt8"))
    with pytest.raises(AssertionError, match=f"waiting for replica {down.replica}"):
        operator.run(within=10)
    pipeline.feed.send(table, 3)
    pipeline.wait("the others continue", lambda: min(wrong(pipeline, table, "1")) > 0)
    pipeline.heal()
    operator.run()
    pipeline.settle(table)


DEATHS = [
    Death(request, number, moment)
    for request, number in requests(replicas=2, restarts=False)
    for moment in ("begun", "done")
]
"""Before each request of a change leaves the operator, and before its answer is noted."""


@pytest.mark.parametrize("death", DEATHS, ids=lambda death: f"{death.request}-{death.moment}")
def test_an_operator_killed_at_any_step_of_a_change_is_followed_by_one_that_ends_it(
    pipeline: Loading, death: Death
) -> None:
    table = f"default.killed_{death.request}_{death.moment}"
    operator = declared(pipeline, table)
    with pipeline.feed.flowing(table):
        operator.change(table, ddl(table, TWO_COLUMNS), deaths=[death])
        status = operator.run()[table]
        assert not operator.deaths
        pipeline.feed.mix_revisions(table)
        before = pipeline.feed.delivered
        assert eventually(lambda: pipeline.feed.delivered > before + 50)
    assert (status.revision, status.held_since) == (2, "")
    pipeline.settle(table)
    assert wrong(pipeline, table, "loud != upper(text)") == [0, 0]


@pytest.mark.parametrize(
    ("ended_by", "state"),
    [(ShardRollout(abort=True), "Aborted"), (ShardRollout(step_timeout="2s"), "StepTimedOut")],
    ids=["abort", "timeout"],
)
def test_a_table_that_waits_in_vain_is_released_as_it_was(
    pipeline: Loading, ended_by: ShardRollout, state: str
) -> None:
    table = f"default.ended_{state.lower()}"
    operator = declared(pipeline, table)
    asked, silent = pipeline.aggregators[:2]
    asked.hold(table, ROLLOUT)
    silent.freeze()
    operator.change(table, ddl(table, TWO_COLUMNS))
    with pytest.raises(AssertionError, match="held to add seven, loud"):
        operator.run(within=5)
    operator.rollout = ended_by
    operator.run((state,))
    assert operator.run((state,))[table].held_since == "", "and it is not held again"
    assert not asked.release(table, ROLLOUT), "it is released already"
    altered = f"table = '{table.partition('.')[2]}' AND name = 'seven'"
    assert wrong(pipeline, "system.columns", altered) == [0, 0]
    pipeline.heal()
    pipeline.feed.send(table, 3)
    operator.rollout = ShardRollout(strategy="Reload")
    operator.change(table, operator.ddl[table])
    assert operator.run()[table].revision == 2
    pipeline.settle(table)


RESTART_DEATHS = [Death("restart", n, "begun") for n in (1, 3)] + [Death("restart", n, "done") for n in (1, 2)]


def test_aggregators_restart_one_after_the_other_whatever_operators_die_meanwhile(pipeline: Loading) -> None:
    table = "default.restarting"
    operator = declared(pipeline, table)
    operator.rollout = ShardRollout()
    lives = {aggregator.replica: aggregator.pid for aggregator in pipeline.aggregators}
    kubelet = Supervisor({aggregator.name: aggregator for aggregator in pipeline.aggregators}, lambda _: None)
    with pipeline.feed.flowing(table), kubelet:
        operator.change(table, ddl(table, TWO_COLUMNS), deaths=[*DEATHS, *RESTART_DEATHS])
        status = operator.run(within=900)[table]
        assert not operator.deaths
        pipeline.feed.mix_revisions(table)
        before = pipeline.feed.delivered
        assert eventually(lambda: pipeline.feed.delivered > before + 50)
    assert (status.revision, operator.record.status.rollout) == (2, None)
    assert all(aggregator.pid != lives[aggregator.replica] for aggregator in pipeline.aggregators)
    pages = [aggregator.status().restart for aggregator in pipeline.aggregators]
    assert pages == [RestartStatus(demanded=1, seen=1)] * 2
    pipeline.settle(table)
    assert wrong(pipeline, table, "loud != upper(text)") == [0, 0]
