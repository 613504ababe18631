"""`blockhouse schema apply` against real aggregators: a table is created and gets columns under load, every row once; a
change that was interrupted is completed by running it again, and what must not be changed is refused."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from blockhouse_aggregator.commands.schema import app
from blockhouse_aggregator.rollout.change import name_of
from e2e.stack import Stack
from e2e.stack.tables import create_replicated_table
from tests.integration.runtime_pipeline import Loading, eventually, healed, loading

pytestmark = pytest.mark.integration

ENGINE = "ENGINE = MergeTree ORDER BY id"


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    with loading(running_stack, tmp_path_factory.mktemp("apply"), "apply") as found:
        yield found


@pytest.fixture
def pipeline(running: Loading) -> Iterator[Loading]:
    with healed(running) as found:
        found.wait("both aggregators in the groups", found.balanced)
        yield found


class Owner:
    """Who states what a table is, in a file, and applies it."""

    def __init__(self, pipeline: Loading, folder: Path, table: str) -> None:
        self._pipeline, self._file, self.table = pipeline, folder / "table.sql", table

    def apply(self, extra: str = "", *options: str, every: bool = True, whole: str = "") -> Result:
        self._file.write_text(whole or self.ddl(extra))
        first, *others = self._pipeline.aggregators
        config = str(first.folder / "aggregator.yaml")
        addresses = [other.url for other in others] if every else []
        arguments = ["apply", self.table, *addresses, "--ddl", str(self._file), "--config", config, *options]
        return CliRunner().invoke(app, arguments)

    def ddl(self, extra: str = "") -> str:
        return f"CREATE TABLE default.{self.table} (id UInt64, text String{extra}) {ENGINE}"


def test_a_table_is_created_and_gets_columns_under_load(pipeline: Loading, tmp_path: Path) -> None:
    owner, feed = Owner(pipeline, tmp_path, "applied"), pipeline.feed
    dry = owner.apply()
    assert (dry.exit_code, dry.output.count("is missing at")) == (0, 2), dry.output
    assert dry.output.count("CREATE TABLE IF NOT EXISTS `default`.`applied`") == 2
    assert not pipeline.stack.clickhouse[1, 1].execute("EXISTS TABLE applied")[0][0]

    assert owner.apply("", "--yes").exit_code == 0
    assert owner.apply().exit_code == 0, "nothing is left to do"
    table = feed.record("applied")
    assert feed.revisions(table) == 1
    with feed.flowing(table):
        assert eventually(lambda: pipeline.stack.clickhouse[1, 1].execute("SELECT count() FROM applied")[0][0] > 0)
        changed = owner.apply(", seven UInt32 DEFAULT 7", "--yes")
        assert changed.exit_code == 0, changed.output
        steps = [line.split(" ")[0] for line in changed.output.splitlines()]
        assert [step for step in steps if step.endswith("ing")] == ["holding", "adding", "releasing"]
        assert feed.revisions(table) == 2
        feed.mix_revisions(table)
        before = feed.delivered
        assert eventually(lambda: feed.delivered > before + 100)
    pipeline.settle(table)


def test_a_table_that_exists_is_registered_before_its_first_message(pipeline: Loading, tmp_path: Path) -> None:
    owner, config = Owner(pipeline, tmp_path, "existing"), str(pipeline.aggregators[0].folder / "aggregator.yaml")
    create_replicated_table(pipeline.stack, "existing", "id UInt64, text String", order_by="id")
    assert CliRunner().invoke(app, ["add", "nowhere", "--config", config]).exit_code != 0

    added = CliRunner().invoke(app, ["add", "existing", "--config", config])

    assert added.exit_code == 0, added.output
    assert "default.existing is registered: revision 1 with 7 columns" in added.output
    proto = CliRunner().invoke(app, ["proto", "existing", "--config", config])
    assert "message RowBatch" in proto.output
    table = pipeline.feed.record(owner.table)
    pipeline.feed.send(table, 5)
    pipeline.settle(table)


def test_a_change_that_was_interrupted_before_its_release_is_completed(pipeline: Loading, tmp_path: Path) -> None:
    owner, feed = Owner(pipeline, tmp_path, "interrupted"), pipeline.feed
    assert owner.apply("", "--yes").exit_code == 0
    table, (first, _) = feed.record("interrupted"), pipeline.aggregators
    extra = ", seven UInt32 DEFAULT 7"
    first.hold(table, name_of(table, owner.ddl(extra)))
    pipeline.stack.clickhouse[1, 1].execute("ALTER TABLE interrupted ADD COLUMN seven UInt32 DEFAULT 7 AFTER text")
    feed.send(table, 5)

    again = owner.apply(extra, "--yes")

    assert again.exit_code == 0, again.output
    pipeline.settle(table)


def test_what_must_not_be_changed_is_refused_before_anything_is(pipeline: Loading, tmp_path: Path) -> None:
    owner = Owner(pipeline, tmp_path, "refused")
    for ddl in ("SELECT 1", "CREATE TABLE other (id UInt64) ENGINE = MergeTree ORDER BY id"):
        assert getattr(owner.apply(whole=ddl).exception, "exit_code", None) == 2
    assert owner.apply("", "--yes").exit_code == 0

    found = owner.apply(", at UInt32 DEFAULT rand()", "--yes")

    assert found.exit_code == 2
    assert "rand()" in found.output
    assert not any(a.tables()["default.refused"].rollout for a in pipeline.aggregators)


def test_a_type_that_the_server_lacks_is_found_by_the_dry_run(pipeline: Loading, tmp_path: Path) -> None:
    version = pipeline.stack.clickhouse[1, 1].version
    found = Owner(pipeline, tmp_path, "precise").apply(", placed DateTime64(3)")

    if version.startswith("18."):
        assert found.exit_code == 2
        lack = f"column placed is DateTime64(3): ClickHouse {version} has no type DateTime64; use DateTime"
        assert found.output.count(lack) == 2
    else:
        assert (found.exit_code, found.output.count("DateTime64(3)")) == (0, 2)


def test_an_aggregator_that_was_not_given_is_named(pipeline: Loading, tmp_path: Path) -> None:
    found = Owner(pipeline, tmp_path, "partial").apply("", "--yes", every=False)

    assert getattr(found.exception, "exit_code", None) == 2
    assert "r2 in cluster a" in str(found.exception)
    assert not pipeline.stack.clickhouse[1, 1].execute("EXISTS TABLE partial")[0][0]
