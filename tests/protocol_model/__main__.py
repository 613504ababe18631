"""`python -m tests.protocol_model`: explore the scenarios, show what goes wrong without a rule, replay a history."""

from __future__ import annotations

import argparse
import sys
import time

from tests.protocol_model.explore import Exploration, explore
from tests.protocol_model.moves import Kind, Move
from tests.protocol_model.scenarios import NEEDED, SOUND, without
from tests.protocol_model.wander import wander
from tests.protocol_model.world import RULES, Setting, World

_WORKER = {Kind.DECIDE, Kind.INSERT, Kind.STUCK, Kind.ACKNOWLEDGE, Kind.TASK_LOST}


def emit(text: str = "") -> None:
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def described(move: Move, world: World, *, merged: bool = False) -> str:
    """One step of a story, in words. `merged`: a decision is followed by its insert at once."""
    if move.kind in _WORKER:
        grant = world.grants[move.who]
        kind = "fresh" if grant.fresh else "replay"
        forgotten = ", forgotten by its driver" if grant.orphan else ""
        rows = f"{kind} block {_table(grant.table)} {list(grant.rows)}{forgotten}"
        then = " and inserts, unless all is there" if merged and move.kind is Kind.DECIDE else ""
        return f"the worker of owner {grant.owner} ({rows}) {move.kind}{then}"
    if move.kind in {Kind.WINDOW_FULL, Kind.QUORUM_MET, Kind.WRITER_LOST}:
        return move.kind.format(who=_table(move.who))
    text = move.kind.format(who=move.who)
    if move.kind is Kind.SCAN:
        text += f" up to {move.stop}"
        text += f", holding {_table(move.held)}" if move.held else ""
        text += f", ending the block of {_table(move.short)} early" if move.short else ""
    if move.kind is Kind.REBUILD:
        text += f" of table {_table(move.table)}"
    if move.kind in {Kind.EFFECT, Kind.COMMIT_LANDS, Kind.COMMIT_HANGS}:
        text += f": {type(world.owners[move.who].todo[0]).__name__}"
    return text


def _table(number: int) -> str:
    return chr(ord("A") + number - 1)


def print_story(setting: Setting, story: tuple[tuple[Move, World], ...], harm: str) -> None:
    for number, (move, world) in enumerate(story, start=1):
        merged = not (setting.fine_inserts or world.budget.stuck_inserts)
        emit(f"  {number:3} {described(move, world, merged=merged)}")
    emit(f"      => {harm}")


def report(name: str, setting: Setting, *, sound: bool) -> bool:
    """Explore and report what was found. True when it is what was expected."""
    began = time.monotonic()
    found: Exploration = explore(setting)
    seconds = time.monotonic() - began
    verdict = "sound" if found.harm is None else "harm"
    emit(
        f"{name}: log {setting.log.text}, {found.worlds} worlds, {found.complete} complete, {seconds:.1f} s: {verdict}"
    )
    if found.harm is not None:
        print_story(setting, found.story, found.harm)
    return (found.harm is None) == sound and (not sound or found.complete > 0)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.protocol_model", description=__doc__)
    parser.add_argument("--without", choices=sorted(RULES), help="the shortest story of what goes wrong without a rule")
    parser.add_argument("--seed", type=int, help="replay one random history")
    parser.add_argument("--walks", type=int, default=0, help="this many random histories, from --seed (default 0) on")
    options = parser.parse_args()
    if options.walks or options.seed is not None:
        first = options.seed or 0
        rules = RULES - {options.without} if options.without else RULES
        for seed in range(first, first + max(1, options.walks)):
            walk = wander(seed, rules)
            if walk.harm or not options.walks:
                emit(f"seed {seed}: log {walk.setting.log.text}, {walk.setting}")
                print_story(walk.setting, walk.story, walk.harm or "everything stored exactly once")
            if walk.harm:
                return 1
        return 0
    if options.without:
        return 0 if report(f"without {options.without}", without(options.without), sound=False) else 1
    results = [report(f"without {rule}", without(rule), sound=False) for rule in NEEDED]
    results += [report(f"with every rule, {name}", setting, sound=True) for name, setting in (NEEDED | SOUND).items()]
    return 0 if all(results) else 1


if __name__ == "__main__":
    sys.exit(main())
