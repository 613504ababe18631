"""An ALTER that the server reports as unfinished: the table is restarted where it lacks the columns, and only once."""

from __future__ import annotations

from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest
import structlog

from blockhouse.errors import BlockhouseError, Permanent, Retryable
from blockhouse.schema.ddl import DeclaredColumn, read_declaration
from blockhouse.schema.difference import Difference
from blockhouse_aggregator.clickhouse import declared as module
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.errors import classify

DECLARED = read_declaration("d.t", "CREATE TABLE t (id UInt64, later UInt8, last UInt8) ENGINE = MergeTree ORDER BY id")
ADDED = tuple(each for each in DECLARED.columns if each.column.name in {"later", "last"})
ALTER, RESTART = "ALTER TABLE `d`.`t`", "SYSTEM RESTART REPLICA `d`.`t`"
UNFINISHED = classify(341, "Alter is not finished because timeout exceeded when waiting for r2", "r1")


class Server:
    """Answers statements with `errors`, by how they begin; what it lacks is `lacking`, one after the other."""

    name = "r1"
    current = False

    def __init__(self, lacking: Sequence[Difference | None], **errors: BlockhouseError) -> None:
        self._lacking, self._errors = list(lacking), errors
        self.statements: list[str] = []

    def query(self, sql: str) -> list[Any]:
        self.statements.append(sql)
        if error := self._errors.get(sql.split(" ")[0].lower()):
            raise error
        return []

    def features(self) -> Any:
        return SimpleNamespace(deduplication_token=self.current)

    def compared(self) -> Difference | None:
        return self._lacking.pop(0) if len(self._lacking) > 1 else self._lacking[0]

    @property
    def restarts(self) -> int:
        return sum(each.startswith("SYSTEM") for each in self.statements)


LACKS, HAS = Difference(ADDED[1:]), Difference()


@pytest.fixture
def add(monkeypatch: pytest.MonkeyPatch) -> Any:
    def run(server: Server, added: Sequence[DeclaredColumn] = ADDED) -> None:
        module.add_columns(cast(Replica, server), DECLARED, added)

    monkeypatch.setattr(module, "compared", lambda server, declared: server.compared())
    monkeypatch.setattr(module._has_soon.retry, "stop", lambda state: state.attempt_number >= 3)  # type: ignore[attr-defined]
    monkeypatch.setattr(module._has_soon.retry, "sleep", lambda seconds: None)  # type: ignore[attr-defined]
    return run


def test_the_table_is_restarted_and_has_the_columns_soon_after(add: Any) -> None:
    server = Server([LACKS, None, LACKS, HAS], alter=UNFINISHED)
    with structlog.testing.capture_logs() as logs:
        add(server)

    assert server.statements[0].startswith(ALTER)
    assert server.statements[1:] == [RESTART]
    assert [(each["event"], each["table"]) for each in logs] == [("ddl.table_restarted", "d.t")]


def test_a_replica_that_has_the_columns_is_not_restarted_for_another_one_that_is_late(add: Any) -> None:
    server = Server([HAS], alter=UNFINISHED)
    add(server)

    assert server.restarts == 0


def test_a_restart_in_vain_is_not_repeated_and_leaves_the_alter_unfinished(add: Any) -> None:
    server = Server([LACKS], alter=UNFINISHED)
    with pytest.raises(Retryable) as caught:
        add(server)

    assert caught.value is UNFINISHED
    assert server.restarts == 1


def test_a_restart_that_is_forbidden_leaves_the_alter_unfinished_for_it_may_still_happen(add: Any) -> None:
    server = Server([LACKS], alter=UNFINISHED, system=Permanent("not enough privileges", reason="AccessDenied"))
    with pytest.raises(Retryable, match=r"341.*SYSTEM RESTART REPLICA.*not enough privileges") as caught:
        add(server)

    assert caught.value.code == 341


@pytest.mark.parametrize(
    "error", [classify(44, "column exists", "r1"), classify(242, "read-only", "r1"), classify(159, "timeout", "r1")]
)
def test_no_other_error_restarts_a_table(add: Any, error: BlockhouseError) -> None:
    server = Server([LACKS], alter=error)
    with pytest.raises(BlockhouseError) as caught:
        add(server)

    assert caught.value is error
    assert server.restarts == 0


def test_columns_that_an_earlier_alter_brought_meanwhile_are_as_good_as_added(add: Any) -> None:
    server = Server([HAS], alter=classify(44, "column later exists", "r1"))
    add(server)

    assert server.restarts == 0


@pytest.mark.parametrize("found", [None, LACKS, Difference(refused=("column later is another type here",))])
def test_a_refused_alter_is_an_error_unless_the_table_is_as_declared(add: Any, found: Difference | None) -> None:
    refused = classify(44, "column later exists", "r1")
    with pytest.raises(Permanent) as caught:
        add(Server([found], alter=refused))

    assert caught.value is refused


def test_nothing_is_restarted_after_an_alter_that_succeeded(add: Any) -> None:
    server = Server([HAS])
    add(server)

    assert len(server.statements) == 1


@pytest.mark.parametrize(("current", "restarts"), [(False, 0), (True, 1)])
def test_an_old_server_that_would_not_attach_the_table_again_is_left_alone(
    add: Any, current: bool, restarts: int
) -> None:
    server = Server([LACKS], alter=UNFINISHED)
    server.current = current
    with pytest.raises(Retryable, match="341"):
        add(server, DECLARED.columns[:3])

    assert server.restarts == restarts
