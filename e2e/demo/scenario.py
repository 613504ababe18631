"""What the demonstration does and when, decided by the seed alone: load, which aggregator to kill and which to freeze.

Pure: no clock, no server. The same arguments give the same scenario, so that a run can be repeated.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from blockhouse_aggregator.produce.load import LoadSpec
from e2e.kit.tables import TABLES

ROWS_PER_MESSAGE = 10
FIRST_MESSAGES = 200
"""Sent before the clock starts: an aggregator is warm when the first of them are stored."""
SECONDS = 60.0
"""How long rows are produced: long enough for every fault to fall into the flow."""
TRICKLE_EVERY = 3.0
"""Seconds between two messages of the quietest table, on average."""

TRICKLE = "alerts"


@dataclass(frozen=True, slots=True)
class Fault:
    """`at` is in seconds after the first message; `candidates` are replicas, the preferred one first."""

    at: float
    candidates: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Scenario:
    """One run, fully decided."""

    seed: int
    rows: int
    replicas: int
    kill: Fault
    create_late_at: float
    freeze: Fault
    freeze_seconds: float

    @property
    def partitions(self) -> int:
        """As many per Kafka cluster as replicas: each owns one stream of every cluster."""
        return self.replicas

    @property
    def load(self) -> LoadSpec:
        messages = -(-self.rows // ROWS_PER_MESSAGE)
        rate = messages / SECONDS
        trickle = 1 / (TRICKLE_EVERY * rate)
        weights = {t.full_name: trickle if t.name == TRICKLE else t.share for t in TABLES}
        return LoadSpec(weights, messages, ROWS_PER_MESSAGE, rate=rate, seed=self.seed)


def plan(seed: int, rows: int, replicas: int) -> Scenario:
    """The scenario of a seed. ValueError below two replicas."""
    if replicas < 2:
        raise ValueError(f"a killed aggregator's work must go to another one: 2 replicas or more, not {replicas}")
    rng = random.Random(seed)
    order = [f"r{number}" for number in range(1, replicas + 1)]
    rng.shuffle(order)
    return Scenario(
        seed=seed,
        rows=rows,
        replicas=replicas,
        kill=Fault(rng.uniform(6, 9), tuple(order)),
        create_late_at=rng.uniform(20, 24),
        freeze=Fault(rng.uniform(28, 32), (*order[1:], order[0])),
        freeze_seconds=rng.uniform(9, 11),
    )
