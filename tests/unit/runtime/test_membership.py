"""In the groups when nothing keeps the aggregator away; suspended by a file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from blockhouse_aggregator.runtime.process import membership as presence
from blockhouse_aggregator.runtime.process.membership import Membership, Suspension


class Groups:
    """Records joins (True) and leaves (False); `slow` lets a move take an iteration of the loop."""

    def __init__(self) -> None:
        self.moves: list[bool] = []
        self.go = asyncio.Event()
        self.go.set()

    async def move(self, present: bool) -> None:
        self.moves.append(present)
        await self.go.wait()


async def test_it_joins_when_it_begins() -> None:
    groups = Groups()
    await Membership(groups.move).begin()

    assert groups.moves == [True]


async def test_it_does_not_join_while_it_is_kept_out_from_the_start() -> None:
    groups = Groups()
    here = Membership(groups.move)
    await here.stay_out("suspended", True)
    await here.begin()

    assert groups.moves == []
    await here.stay_out("suspended", False)
    assert groups.moves == [True]


async def test_it_does_not_come_back_while_the_process_ends() -> None:
    """Its members are closed: to join would fail."""
    groups = Groups()
    here = Membership(groups.move)
    await here.begin()
    await here.stay_out("replica", True)
    here.end()
    await here.stay_out("replica", False)

    assert groups.moves == [True, False]


async def test_it_comes_back_only_when_the_last_reason_is_gone() -> None:
    groups = Groups()
    here = Membership(groups.move)
    await here.begin()

    await here.stay_out("suspended", True)
    await here.stay_out("replica", True)
    await here.stay_out("suspended", False)
    assert groups.moves == [True, False]
    await here.stay_out("replica", False)

    assert groups.moves == [True, False, True]


async def test_reasons_that_change_while_it_moves_are_followed_and_never_two_moves_at_once() -> None:
    groups = Groups()
    here = Membership(groups.move)
    groups.go.clear()
    joining = asyncio.create_task(here.begin())
    await asyncio.sleep(0)
    away = asyncio.create_task(here.stay_out("replica", True))
    await asyncio.sleep(0)

    assert groups.moves == [True]
    groups.go.set()
    await asyncio.gather(joining, away)

    assert groups.moves == [True, False]


@pytest.mark.parametrize(("text", "suspended"), [("true", True), ("true\n", True), ("false", False), ("", False)])
def test_the_file_states_whether_it_is_suspended(tmp_path: Path, text: str, suspended: bool) -> None:
    file = tmp_path / "suspend"
    file.write_text(text)

    assert Suspension(file).suspended is suspended


def test_no_file_suspends_nothing_and_an_unreadable_one_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "suspend"
    file.write_text("true")
    watched = Suspension(file)
    file.unlink()
    file.mkdir()
    watched.look()

    assert watched.suspended
    assert not Suspension(None).suspended
    assert not Suspension(tmp_path / "missing").suspended


async def test_changes_of_the_file_are_reported_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "PERIOD", 0)
    file = tmp_path / "suspend"
    file.write_text("true")
    reported: asyncio.Queue[bool] = asyncio.Queue()
    watching = asyncio.create_task(Suspension(file).watch(reported.put))

    assert await asyncio.wait_for(reported.get(), 10) is True
    file.write_text("false")
    assert await asyncio.wait_for(reported.get(), 10) is False
    assert reported.empty()
    watching.cancel()
