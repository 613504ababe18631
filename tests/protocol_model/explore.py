"""Breadth first through every reachable world of a small setting: the first harm found is the shortest story."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass

from tests.protocol_model.canonical import canonical
from tests.protocol_model.carry_out import carry_out
from tests.protocol_model.moves import Move, moves
from tests.protocol_model.oracle import broken, harm, is_complete
from tests.protocol_model.world import RULES, Setting, World, beginning


@dataclass(frozen=True, slots=True)
class Exploration:
    """`harm` is None when every reachable world is sound; else `story` leads to it, a move and the world before each.
    `complete` counts the worlds in which everything is stored: an exploration that never gets there proves nothing."""

    worlds: int
    complete: int
    harm: str | None = None
    story: tuple[tuple[Move, World], ...] = ()


def explore(setting: Setting, most: int = 2_000_000) -> Exploration:
    """Visit every world reachable in `setting`. Raises OverflowError beyond `most` of them."""
    start = beginning(setting)
    came_from: dict[World, tuple[World, Move] | None] = {start: None}
    queue = deque([start])
    complete = 0
    strict = setting.rules == RULES
    while queue:
        world = queue.popleft()
        complete += is_complete(setting, world)
        for move in moves(setting, world):
            after = carry_out(setting, world, move)
            wrong = broken(world, move, after) if strict else None
            after = canonical(after)
            if after in came_from and wrong is None:
                continue
            came_from[after] = (world, move)
            wrong = wrong or harm(setting, after)
            if wrong:
                return Exploration(len(came_from), complete, wrong, _story(came_from, after))
            if len(came_from) > most:
                raise OverflowError(f"more than {most} worlds: make the setting smaller")
            queue.append(after)
    return Exploration(len(came_from), complete)


def _story(came_from: dict[World, tuple[World, Move] | None], end: World) -> tuple[tuple[Move, World], ...]:
    steps: list[tuple[Move, World]] = []
    link = came_from[end]
    while link is not None:
        world, move = link
        steps.append((move, world))
        link = came_from[world]
    return tuple(reversed(steps))
