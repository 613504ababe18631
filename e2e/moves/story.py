"""One reassignment from its plan to its end, while the operator is killed again and again; what holds at each death.

Nothing copies unthrottled; at the end a partition is at an end of its move, what others set is as they left it, and
neither a throttle nor a record of ours is left.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from typing import Any, Literal

from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.throttling import LISTS, RATES
from blockhouse.placement.model import TopicPartition
from blockhouse.throttle.model import Role
from e2e.moves.kubernetes import Desk
from e2e.moves.process import OperatorProcess
from e2e.stack.process import wait_until

NAME = "moved"
Ending = Literal["Completed", "Finish", "Cancel"]
ENDINGS: tuple[Ending, ...] = ("Completed", "Finish", "Cancel")
FOREIGN_RATE, FOREIGN_ENTRY = "7000001", "7:1"
LIFE_SECONDS, END_SECONDS = 15.0, 150.0
FOLLOWER = Role.FOLLOWER


@dataclass(frozen=True)
class Death:
    """`phase` is that of the status; `change` what would have come next, or empty when it came from outside."""

    phase: str
    change: str


@dataclass
class Story:
    """Use once, with a partition of two replicas on a cluster of three brokers. `rate` is in MB/s."""

    kafka: str
    fleet: KafkaFleet
    folder: Path
    key: TopicPartition
    seed: int
    rate: int = 8
    lives: int = 5
    """Operators that are killed; the next one is not."""
    each_change: bool = False
    """Every operator makes one or two changes, in turn, and dies before the next: a change may ask the fence twice."""
    deaths: list[Death] = field(default_factory=list)
    deleted: bool = False

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True)
        self.ending = ENDINGS[self.seed % len(ENDINGS)]
        self._chance = Random(self.seed)
        self._desk = Desk(self.folder)
        self._before = self.fleet.partitions()[self.key].replicas
        self._leaving, self._stays = self._chance.sample(self._before, 2)

    def run(self) -> None:
        """Raises AssertionError naming what does not hold."""
        self._others_set_their_own()
        self._desk.apply(NAME, self._spec())
        over = False
        for number in range(self.lives):
            if not over:
                changes, seconds = self._chance.randint(1, 12), self._chance.uniform(0.2, LIFE_SECONDS)
                over = self._live(2 + number % 2, LIFE_SECONDS) if self.each_change else self._live(changes, seconds)
        if not over:
            assert self._live(0, END_SECONDS), f"not at its end after {END_SECONDS} s: {self._desk.status(NAME)}"
        self._ended_well()

    def _spec(self) -> dict[str, Any]:
        throttle = {"interval": "5s", "minRate": f"{self.rate}M", "maxRate": f"{self.rate}M"}
        return {
            "cluster": {"name": "a", "bootstrapServers": self.kafka},
            "operation": "ReplaceBrokers",
            "leaving": [self._leaving],
            "topics": {"include": [self.key.topic]},
            "throttle": throttle | {"capacity": {"default": "1G"}},
            "onDelete": "Cancel" if self.ending == "Cancel" else "Finish",
        }

    def _live(self, dies_before: int, seconds: float) -> bool:
        """One life of an operator, of so many changes or seconds. Returns whether everything is at its end."""
        operator = OperatorProcess(self.folder, dies_before=dies_before)
        try:
            assert wait_until(lambda: operator.works or operator.ended, timeout=60)
            until = time.monotonic() + seconds
            while not operator.ended and time.monotonic() < until:
                self._act()
                if self._over():
                    return True
                time.sleep(0.1)
        finally:
            operator.kill()
        self.deaths.append(Death(self._phase(), operator.last()))
        assert wait_until(self._throttled, timeout=10), f"{self.deaths[-1]}: a replica arrives unthrottled"
        return False

    def _phase(self) -> str:
        return "Deleted" if self.deleted else str(self._desk.status(NAME).get("phase", "New"))

    def _act(self) -> None:
        """Approve what is shown; delete the resource in the middle of the move, or when it is completed."""
        if self.deleted:
            return
        status = self._desk.status(NAME)
        if status.get("phase") == "AwaitingApproval":
            self._desk.apply(NAME, self._spec() | {"approvedPlan": status["plan"]["hash"]})
        in_the_middle = self.ending != "Completed" and self.key in self.fleet.moves()
        if in_the_middle or (status.get("phase") == "Completed" and f"{NAME}-throttle" not in self._desk.records()):
            self._desk.delete(NAME)
            self.deleted = True

    def _over(self) -> bool:
        return self.deleted and not self._desk.records()

    def _throttled(self) -> bool:
        """Whether every replica that arrives has a rate and an entry; what arrived meanwhile needs none."""
        arriving = self._arriving()
        rates, lists = self.fleet.broker_settings(arriving, RATES), self.fleet.topic_settings([self.key.topic], LISTS)
        listed = lists.get(self.key.topic, {}).get(FOLLOWER.list_setting)
        entries = listed.value.split(",") if listed else []
        missing = {
            broker
            for broker in arriving
            if FOLLOWER.rate_setting not in rates[broker] or f"{self.key.partition}:{broker}" not in entries
        }
        return not missing & self._arriving()

    def _arriving(self) -> frozenset[int]:
        move = self.fleet.moves().get(self.key)
        return move.adding - self.fleet.partitions()[self.key].in_sync if move else frozenset()

    def _others_set_their_own(self) -> None:
        self.fleet.change_broker(self._stays, {FOLLOWER.rate_setting: FOREIGN_RATE})
        self.fleet.change_topic(self.key.topic, {FOLLOWER.list_setting: FOREIGN_ENTRY})

    def _ended_well(self) -> None:
        assert self.key not in self.fleet.moves()
        state = self.fleet.partitions()[self.key]
        ends = [set(self._before), {1, 2, 3} - {self._leaving}]
        assert set(state.replicas) in (ends if self.ending == "Cancel" else ends[1:]), state
        assert state.in_sync == set(state.replicas)
        rates = {id: given for id, given in self.fleet.broker_settings([1, 2, 3], RATES).items() if given}
        assert {id: {name: found.value for name, found in given.items()} for id, given in rates.items()} == {
            self._stays: {FOLLOWER.rate_setting: FOREIGN_RATE}
        }
        lists = self.fleet.topic_settings([self.key.topic], LISTS)[self.key.topic]
        assert {name: found.value for name, found in lists.items()} == {FOLLOWER.list_setting: FOREIGN_ENTRY}
        self.fleet.change_broker(self._stays, {}, [FOLLOWER.rate_setting])
        self.fleet.change_topic(self.key.topic, {}, [FOLLOWER.list_setting])
