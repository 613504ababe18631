"""What a change of a table waits for, from what aggregators show."""

from __future__ import annotations

from typing import Any
from unittest.mock import AsyncMock

import pytest

from blockhouse.contract.aggregator import Phase, TableStatus
from blockhouse.contract.rollouts import DifferenceAnswer
from blockhouse.errors import Blocked, Permanent, Retryable
from blockhouse_aggregator.rollout.change import Change, name_of, plan, strangers, unknown_stream, unloaded
from tests.contract_values import page, stream

STREAMS = ("a/t/0", "a/t/1")


def table(revision: int, held: str = "") -> TableStatus:
    return TableStatus(name="d.t", id=1, revision=revision, held=held, why="", rollout="", hazards=())


def test_a_plan_names_where_the_table_is_missing_which_columns_are_and_what_forbids_it() -> None:
    found = plan(
        {
            "x:1": DifferenceAnswer(exists=False, added=("id",), refused=(), statement="CREATE 1"),
            "x:2": DifferenceAnswer(exists=True, added=("later",), refused=()),
            "x:3": DifferenceAnswer(exists=True, added=(), refused=("another type",)),
            "x:4": DifferenceAnswer(exists=True, added=(), refused=()),
        }
    )

    assert list(found.missing) == ["x:1"]
    assert found.lacking == {"x:2": ("later",)}
    assert found.refused == {"x:3": ("another type",)}
    assert found.statements == {"x:1": "CREATE 1"}
    assert not found.nothing
    assert plan({"x:4": DifferenceAnswer(exists=True, added=(), refused=())}).nothing


def test_the_same_change_has_the_same_name() -> None:
    assert name_of("d.t", "CREATE") == name_of("d.t", "CREATE") != name_of("d.u", "CREATE")


def test_what_is_in_flight_is_known_when_every_stream_is_owned_and_taken_over() -> None:
    every = {"x:1": page(stream("a/t/0")), "x:2": page(stream("a/t/1", Phase.REPLAY))}

    assert unknown_stream(every, STREAMS) == ""


def test_a_stream_that_moves_may_have_a_block_that_no_page_shows() -> None:
    assert unknown_stream({"x:1": page(stream("a/t/0")), "x:2": page()}, STREAMS) == "no aggregator owns a/t/1"
    starting = {"x:1": page(stream("a/t/0"), stream("a/t/1", Phase.STARTING))}
    assert "a/t/1 is not known: it is STARTING" in unknown_stream(starting, STREAMS)


@pytest.mark.parametrize(
    ("first", "second", "why"),
    [
        (table(2), table(2), ""),
        (table(2), table(1), "x:2 does not know revision 2 yet"),
        (table(2), None, "x:2 does not know revision 2 yet"),
        (table(2), table(2, "Rollout"), "x:2 holds it"),
        (table(0), table(0), "x:1 does not know revision 1 yet"),
    ],
)
def test_every_aggregator_loads_the_newest_revision(first: TableStatus, second: TableStatus | None, why: str) -> None:
    pages = {"x:1": page(tables=(first,)), "x:2": page(tables=(second,) if second else ())}

    found = unloaded("d.t", pages)

    assert why in found
    assert bool(found) == bool(why)


def test_a_member_that_was_not_given_is_named() -> None:
    pages = {"x:1": page(replica="r1"), "x:2": page(replica="r2")}

    assert strangers(pages, {"a": ["r1", "r2"], "b": ["r2"]}) == []
    assert strangers(pages, {"a": ["r1", "r2"], "b": ["r3", "r2"]}) == ["r3 in cluster b"]


def test_aggregators_of_several_shards_are_refused() -> None:
    with pytest.raises(Blocked, match="more than one shard: p/0, p/1"):
        strangers({"x:1": page(), "x:2": page(shard="1")}, {})


DDL = "CREATE"
LACKING = plan({"x:1": DifferenceAnswer(exists=True, added=("later",), refused=())})


def shard(**failures: BaseException) -> Any:
    """One aggregator that holds the table and has nothing in flight; the requests named fail."""
    held = table(1).model_copy(update={"rollout": name_of("d.t", DDL)})
    made = AsyncMock(addresses=("x:1",))
    made.pages.return_value = {"x:1": page(stream("a/t/0"), tables=(held,))}
    for name, error in failures.items():
        getattr(made, name).side_effect = error
    return made


async def carried_out(aggregators: Any) -> list[str]:
    lines: list[str] = []
    await Change(aggregators, ["a/t/0"], "d.t", DDL, lines.append, timeout=0.2).carry_out(LACKING)
    return lines


async def test_a_pause_of_which_no_answer_came_is_ended() -> None:
    silent = shard(hold=Retryable("no answer"))

    with pytest.raises(Retryable, match="no answer"):
        await carried_out(silent)
    silent.release.assert_awaited_once()
    silent.apply.assert_not_awaited()


async def test_a_table_stays_paused_while_its_alter_may_still_happen() -> None:
    silent = shard(apply=Retryable("no answer"))

    with pytest.raises(Retryable, match="no answer"):
        await carried_out(silent)
    silent.release.assert_not_awaited()


async def test_a_table_is_released_when_its_alter_was_refused() -> None:
    refusing = shard(apply=Permanent("a syntax error", reason="InvalidDdl"))

    with pytest.raises(Permanent, match="syntax"):
        await carried_out(refusing)
    refusing.release.assert_awaited_once()


async def test_a_replica_that_does_not_carry_the_statement_out_has_it_asked_of_its_own_aggregator() -> None:
    """18.16 after a freeze: the statement ends at the first replica, and the other one never gets the column."""
    late = {"x:2"}
    aggregators = shard()
    aggregators.addresses = ("x:1", "x:2")
    held = aggregators.pages.return_value["x:1"]
    aggregators.pages.return_value = {"x:1": held, "x:2": page(tables=held.tables)}
    aggregators.apply.side_effect = lambda address, *_: late.discard(address)
    aggregators.differences.side_effect = lambda *_: {
        each: DifferenceAnswer(exists=True, added=("later",) if each in late else (), refused=())
        for each in aggregators.addresses
    }

    lines = await carried_out(aggregators)

    assert [call.args[0] for call in aggregators.apply.await_args_list] == ["x:1", "x:2", "x:1"]
    assert "adding them at x:2, whose replica has not carried that out" in lines
    aggregators.release.assert_awaited_once()


async def test_a_replica_whose_aggregator_was_asked_is_not_asked_without_end() -> None:
    aggregators = shard()
    aggregators.differences.return_value = {"x:1": DifferenceAnswer(exists=True, added=("later",), refused=())}

    with pytest.raises(Retryable, match="the replica of x:1 lacks later"):
        await carried_out(aggregators)
    assert aggregators.apply.await_count == 1
