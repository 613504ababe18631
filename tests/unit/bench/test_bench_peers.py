"""How the comparison with others counts harm and reports what it found."""

from __future__ import annotations

from typing import cast

import pytest

from bench import exactly_once_vs_peers
from bench.exactly_once_vs_peers import HARMS, Result, harm_by_kills, table_of
from bench.peers import PEERS, Peer


class Mortal:
    """A contestant that has something to die of `lives` times."""

    def __init__(self, lives: int) -> None:
        self.lives = lives

    def kill_after_insert(self) -> bool:
        self.lives -= 1
        return self.lives >= 0


@pytest.mark.parametrize(("lives", "done"), [(5, 3), (3, 3), (1, 1), (0, 0)])
def test_only_kills_that_fell_between_insert_and_commit_count(
    monkeypatch: pytest.MonkeyPatch, lives: int, done: int
) -> None:
    monkeypatch.setattr(exactly_once_vs_peers, "PAUSE", 0)
    assert harm_by_kills(cast(Peer, Mortal(lives)), 3) == done


def test_loss_and_duplicates_are_distinguished() -> None:
    lines = table_of([Result("a loop", "killed, 3 times", 100_000, 20, 7_260)]).splitlines()
    assert lines[2] == "| a loop | killed, 3 times | 100,000 | 20 | 7,260 |"


def test_there_is_a_control_without_harm_and_blockhouse_is_among_the_contestants() -> None:
    assert "none" in HARMS
    assert "blockhouse" in PEERS
