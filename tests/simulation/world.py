"""What all parts of a simulated world share: its setting, chance, network, clock, story, and whether harm was done."""

from __future__ import annotations

import contextvars
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Any

from tests.simulation.clock import PROCESS, START, SimLoop

LOCAL, REMOTE = 0.0005, 0.02
"""Seconds one way inside a zone and between zones."""


@dataclass(frozen=True, slots=True)
class Chances:
    """How often things go wrong where they are asked: 0 to 1."""

    commit_lost: float = 0.0
    insert_lost: float = 0.0
    slow_insert: float = 0.0
    slow_fetch: float = 0.0
    early_ok: float = 0.0
    started_early: float = 0.0
    strike: float = 0.0
    corrupt_replay: float = 0.0
    misreport: float = 0.0
    cut: float = 0.05
    loading: float = 0.0
    round: float = 0.0
    late_join: float = 0.0
    proof_lost: float = 0.0


@dataclass(frozen=True, slots=True)
class Setting:
    """One world. `window` blocks and seconds are the tables'; `tables` counts them, `new_tables` those of them that no
    aggregator has met when it begins, `split` is how many ClickHouse partitions a table's rows spread over.
    `server_session` is the ZooKeeper session time-out of ClickHouse itself, `cleaner` the seconds between two cuts of
    the window to its size."""

    seed: int
    clusters: int
    partitions: int
    replicas: int
    tables: int
    messages: int
    seconds: float
    faults: int
    window: int
    window_seconds: int
    split: int
    quorum_timeout: float
    session_timeout: float
    server_session: float
    cleaner: float
    max_age: float
    metadata_units: int
    slots: int
    lease: float
    chances: Chances
    zoned: bool
    new_tables: int
    event: str = ""
    """What changes underneath, beside all misfortunes; empty: nothing. See `events.EVENTS`."""


class World:
    """What all processes share. `harm` is what was found first; the run ends there."""

    def __init__(self, setting: Setting, *, keep_story: bool = False) -> None:
        self.setting = setting
        self.random = Random(setting.seed)
        self.loop = SimLoop()
        self._no_process = contextvars.Context()
        self.harm: str | None = None
        self.healing = False
        self.split_zones = False
        self.zookeeper_up = True
        self.counts: dict[str, int] = {}
        self.causes: dict[str, set[str]] = {}
        """By stream: for which reasons it may stand still, or be the subject of an alarm, by now."""
        self.story: list[tuple[float, str, str]] | None = [] if keep_story else None
        self.strike: Callable[[str, int], None] = lambda _point, _replica: None
        """Called where a fault would hurt most, with the replica's number: may kill or freeze it at once."""

    def later(self, delay: float, work: Callable[..., Any], *arguments: Any) -> None:
        """Do something outside of every process: the one that caused it may be dead or frozen by then."""
        self.loop.call_later(delay, work, *arguments, context=self._no_process)

    # --- chance, time, network ------------------------------------------------------------------------------

    def chance(self, probability: float) -> bool:
        """Never while the world heals, so that every run can end."""
        return not self.healing and probability > 0 and self.random.random() < probability

    def now_ms(self) -> int:
        """The clock of all servers; aggregators have their own."""
        return int((START + self.loop.time()) * 1000)

    def linked(self, one: int, other: int) -> bool:
        """Whether two zones reach each other."""
        return one == other or not self.split_zones

    def trip(self, one: int, other: int) -> float:
        """Seconds a message takes from one zone to the other, this time."""
        return (LOCAL if one == other else REMOTE) * self.random.uniform(0.8, 2.0)

    # --- the story ------------------------------------------------------------------------------------------

    def narrate(self, who: str, what: str) -> None:
        if self.story is not None:
            self.story.append((self.loop.time(), who, what))

    def log(self, event: str, values: dict[str, Any]) -> None:
        """A log line of the product."""
        if self.story is not None:
            process = PROCESS.get()
            text = " ".join(f"{key}={value}" for key, value in values.items() if key != "exc_info")
            self.narrate(process.name if process else "?", f"{event} {text}")

    def hurt(self, text: str) -> None:
        """Harm was done, or a promise broken."""
        if self.harm is None:
            self.harm = text
            self.narrate("ORACLE", text)

    def count(self, what: str) -> None:
        self.counts[what] = self.counts.get(what, 0) + 1
