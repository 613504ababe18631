"""Breadth first through every reachable world: the first harm found is the shortest story."""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

from tests.mirror_model.moves import moves
from tests.mirror_model.world import Setting, World, beginning


class Exploration(NamedTuple):
    """`harm` is None when every reachable world is sound; else `story` has the moves that lead to it. `complete` counts
    worlds in which the position is at the end: an exploration that never gets there proves nothing."""

    worlds: int
    complete: int
    handed_over: int
    harm: str | None = None
    story: tuple[str, ...] = ()


def explore(
    setting: Setting, kinds: tuple[str, ...] = ("LOSS", "DUPLICATE", "ORDER"), most: int = 400_000
) -> Exploration:
    """Visit every world reachable in `setting`; harm of other kinds is passed over. OverflowError beyond `most`."""
    start = beginning()
    came_from: dict[World, tuple[World, str] | None] = {start: None}
    queue = deque([start])
    complete = handed_over = 0
    while queue:
        world = queue.popleft()
        at_end = world.stored.offset == len(setting.text)
        complete += at_end
        handed_over += at_end and world.driver.holder == "B"
        for name, after in moves(setting, world):
            if after in came_from:
                continue
            came_from[after] = (world, name)
            wrong = harm(setting, after)
            if wrong and wrong.startswith(kinds):
                return Exploration(len(came_from), complete, handed_over, wrong, _story(came_from, after))
            if len(came_from) > most:
                raise OverflowError(f"more than {most} worlds: make the setting smaller")
            queue.append(after)
    return Exploration(len(came_from), complete, handed_over)


def harm(setting: Setting, world: World) -> str | None:
    """The first harm done to the data, in words."""
    on_target = [origin.offset for origin in world.origins]
    for position in (world.stored, world.driver.known):
        lost = [offset for offset in setting.records if offset < position.offset and offset not in on_target]
        if lost:
            return f"LOSS: the position {position.offset} passes {lost}, the target has {on_target}"
        passed = {offset for offset, kind in enumerate(setting.text[: position.offset]) if kind == "f"}
        if not passed <= world.letters:
            return f"LOSS: the position {position.offset} passes {passed}, there are letters of {set(world.letters)}"
    if len(set(on_target)) < len(on_target):
        return f"DUPLICATE: the target has {on_target}"
    if on_target != sorted(on_target):
        return f"ORDER: the target has {on_target}"
    return None


def _story(came_from: dict[World, tuple[World, str] | None], end: World) -> tuple[str, ...]:
    steps: list[str] = []
    link = came_from[end]
    while link is not None:
        world, name = link
        steps.append(name)
        link = came_from[world]
    return tuple(reversed(steps))
