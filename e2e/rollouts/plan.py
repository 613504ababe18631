"""Whom a seed kills, and at which step of the rollout. Pure."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass

VICTIMS = ("aggregator", "clickhouse", "operator")


@dataclass(frozen=True, slots=True)
class Kill:
    """A SIGKILL of `victim` (operator, aggregator-r1, clickhouse-r1) when the `number`-th request of this word has got
    to `moment` (begun, done), `delay` seconds later; it is started again `down` seconds after that.

    An operator dies at exactly that moment: before the request leaves it, or before it has noted the answer.
    """

    victim: str
    request: str
    number: int
    moment: str
    delay: float
    down: float

    def __str__(self) -> str:
        later = f" + {self.delay:.1f} s" if self.delay else ""
        return f"{self.victim} at {self.request} {self.number} {self.moment}{later}, down {self.down:.1f} s"


def requests(replicas: int, *, restarts: bool) -> list[tuple[str, int]]:
    """The requests of one rollout that nothing disturbs, in order: word, and how many of that word there were."""
    found = [("hold", 1), ("apply", 1), ("release", 1)]
    return found + [("restart", number) for number in range(1, replicas + 1) if restarts]


def plan(seed: int, replicas: Sequence[str], *, restarts: bool) -> Kill:
    """What a seed does. The kinds of victims come round in turn, so that a few seeds in a row show them all."""
    rng = random.Random(seed)
    kind = VICTIMS[seed % len(VICTIMS)]
    # The barrier is what could be got wrong: half of all kills fall into it, however many replicas restart after it.
    steps = requests(len(replicas), restarts=restarts)
    request, number = rng.choice(steps[:3] if rng.random() < 0.5 else steps)
    return Kill(
        victim=kind if kind == "operator" else f"{kind}-{rng.choice(replicas)}",
        request=request,
        number=number,
        moment=rng.choice(("begun", "done")),
        delay=0.0 if kind == "operator" else round(rng.uniform(0, 1), 2),
        down=round(rng.uniform(0, 6), 1),
    )
