"""A long random walk through a large world, then everything heals: at the end each message must be stored exactly once.

The walk is a pure function of its seed: a failure is replayed with `python -m tests.protocol_model --seed N`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from random import Random

from tests.protocol_model.carry_out import carry_out
from tests.protocol_model.log import Log
from tests.protocol_model.moves import FAULTS, Kind, Move, moves
from tests.protocol_model.oracle import broken, harm, is_complete
from tests.protocol_model.owners import Stopped
from tests.protocol_model.world import RULES, Budget, Setting, World, beginning

HEALING_MOVES = 3_000
_HEALING = (
    Kind.QUORUM_MET,
    Kind.LATE_COMMIT,
    Kind.POLL,
    Kind.READ,
    Kind.EFFECT,
    Kind.ACKNOWLEDGE,
    Kind.INSERT,
    Kind.DECIDE,
    Kind.REBUILD,
    Kind.FLUSH,
    Kind.SCAN,
)
"""What is done first while everything heals; faults do not happen any more."""


@dataclass(frozen=True, slots=True)
class Walk:
    """`harm` is None when the walk did none; `faults` counts the misfortunes that struck."""

    setting: Setting
    story: tuple[tuple[Move, World], ...]
    faults: int
    harm: str | None


def setting_of(seed: int, rules: frozenset[str] = RULES) -> Setting:
    """A random setting: log, owners, misfortunes, limits."""
    random = Random(seed)
    letters = "".join(random.choices("ABCabc!-", weights=[9, 6, 3, 1, 1, 1, 1, 2], k=random.randint(3, 10)))
    return Setting(
        Log(letters if any(letter.isalpha() for letter in letters) else letters + "A"),
        rules,
        owners=random.choice([2, 2, 3]),
        budget=Budget(*(random.randint(0, 3) for _ in Budget._fields)),
        room=random.choice([1, 2, 99, 99]),
        partitions=random.choice([1, 1, 2]),
        may_hold=True,
        may_cut=True,
        may_close=True,
        fine_effects=True,
        fine_reads=True,
        fine_inserts=True,
    )


def wander(seed: int, rules: frozenset[str] = RULES, steps: int = 60) -> Walk:
    """`steps` random moves in a random setting, then healing until everything is stored."""
    setting, random = setting_of(seed, rules), Random(-1 - seed)
    world, story, faults = beginning(setting), [], 0
    for number in range(steps + HEALING_MOVES):
        if number == steps:
            setting, world = replace(setting, may_hold=False, may_cut=False), world._replace(budget=Budget())
        enabled = list(moves(setting, world, random))
        if number >= steps and (not enabled or is_complete(setting, world)):
            break
        if not enabled:
            continue
        move = _any(enabled, random) if number < steps else _healing(enabled, random)
        story.append((move, world))
        faults += move.kind in FAULTS
        wrong, world = _after(setting, world, move)
        if wrong:
            return Walk(setting, tuple(story), faults, wrong)
    done = is_complete(setting, world)
    return Walk(setting, tuple(story), faults, None if done else "NOT COMPLETE: healed, but messages are missing")


def _after(setting: Setting, world: World, move: Move) -> tuple[str | None, World]:
    try:
        after = carry_out(setting, world, move)
    except Stopped as stop:
        return str(stop), world
    wrong = harm(setting, after) or (broken(world, move, after) if setting.rules == RULES else None)
    return wrong, after


def _any(enabled: list[Move], random: Random) -> Move:
    """First what kind of thing happens, then which: else the kinds with many choices would crowd out the others."""
    kinds = sorted({move.kind for move in enabled})
    faults = [kind for kind in kinds if kind in FAULTS]
    usual = [kind for kind in kinds if kind not in FAULTS]
    kind = random.choice(faults if faults and (not usual or random.random() < 0.3) else usual)
    return random.choice([move for move in enabled if move.kind is kind])


def _healing(enabled: list[Move], random: Random) -> Move:
    first = min((move.kind for move in enabled), key=_HEALING.index)
    return random.choice([move for move in enabled if move.kind is first])
