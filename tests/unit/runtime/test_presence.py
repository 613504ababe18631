"""In the groups when nothing keeps the aggregator away; suspended by a file."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from blockhouse_aggregator.runtime import presence
from blockhouse_aggregator.runtime.presence import Presence, Suspension


class Groups:
    """Records joins (True) and leaves (False); `slow` lets a move take a turn of the loop."""

    def __init__(self) -> None:
        self.moves: list[bool] = []
        self.go = asyncio.Event()
        self.go.set()

    async def move(self, present: bool) -> None:
        self.moves.append(present)
        await self.go.wait()


async def test_it_joins_when_it_begins() -> None:
    groups = Groups()
    await Presence(groups.move).begin()

    assert groups.moves == [True]


async def test_it_does_not_join_while_it_is_kept_away_from_the_start() -> None:
    groups = Groups()
    here = Presence(groups.move)
    await here.keep_away("suspended", True)
    await here.begin()

    assert groups.moves == []
    await here.keep_away("suspended", False)
    assert groups.moves == [True]


async def test_it_comes_back_only_when_the_last_reason_is_gone() -> None:
    groups = Groups()
    here = Presence(groups.move)
    await here.begin()

    await here.keep_away("suspended", True)
    await here.keep_away("replica", True)
    await here.keep_away("suspended", False)
    assert groups.moves == [True, False]
    await here.keep_away("replica", False)

    assert groups.moves == [True, False, True]


async def test_reasons_that_change_while_it_moves_are_followed_and_never_two_moves_at_once() -> None:
    groups = Groups()
    here = Presence(groups.move)
    groups.go.clear()
    joining = asyncio.create_task(here.begin())
    await asyncio.sleep(0)
    away = asyncio.create_task(here.keep_away("replica", True))
    await asyncio.sleep(0)

    assert groups.moves == [True]
    groups.go.set()
    await asyncio.gather(joining, away)

    assert groups.moves == [True, False]


@pytest.mark.parametrize(("text", "suspended"), [("true", True), ("true\n", True), ("false", False), ("", False)])
def test_the_file_says_whether_it_is_suspended(tmp_path: Path, text: str, suspended: bool) -> None:
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


async def test_changes_of_the_file_are_told_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "PERIOD", 0)
    file = tmp_path / "suspend"
    file.write_text("true")
    told: asyncio.Queue[bool] = asyncio.Queue()
    watching = asyncio.create_task(Suspension(file).watch(told.put))

    assert await asyncio.wait_for(told.get(), 10) is True
    file.write_text("false")
    assert await asyncio.wait_for(told.get(), 10) is False
    assert told.empty()
    watching.cancel()
