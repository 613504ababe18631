"""A KafkaReassignment as a person has it before the operator's own reconciles on real brokers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from blockhouse.fleet.kafka_admin import KafkaFleet
from blockhouse.fleet.throttling import LISTS, RATES
from blockhouse.placement.model import ReplicaSet, TopicPartition
from blockhouse.throttle.model import Role
from e2e.moves.kubernetes import Desk
from e2e.stack.process import wait_until
from tests.integration.throttled_moves import size_on

NAME = "moved"


@dataclass
class Reassignment:
    """One resource and the operator that reconciles it."""

    bootstrap: str
    fleet: KafkaFleet
    desk: Desk
    key: TopicPartition
    access: dict[str, Any] = field(default_factory=dict)
    spec: dict[str, Any] = field(default_factory=dict)

    def apply(
        self, brokers: ReplicaSet, rate: str, *, approve: bool = True, plan: bool = True, **throttle: str
    ) -> None:
        """Let the topic's replicas be on these brokers, copied at this rate; approved as soon as there is a plan, or
        with `approve` of False not, or no longer. With `plan` of False no plan is waited for."""
        fixed = {"interval": "5s", "minRate": rate, "maxRate": rate, "capacity": {"default": "1G"}}
        spec: dict[str, Any] = {
            "cluster": {"name": "a", "bootstrapServers": self.bootstrap} | self.access,
            "operation": "Rebuild",
            "brokers": list(brokers),
            "topics": {"include": [self.key.topic]},
            "throttle": fixed | throttle,
        }
        self.desk.apply(NAME, spec)
        if not plan:
            self.spec = spec
            return
        self.wait("a plan", lambda: self.status.get("plan", {}).get("hash"))
        if approve:
            self.desk.apply(NAME, spec | {"approvedPlan": self.status["plan"]["hash"]})

    def approve_what_is_shown_until(self, kind: str, *reasons: str) -> None:
        """After `apply` without a plan: until the condition has one of the reasons."""

        def reached() -> bool:
            shown = self.status.get("plan", {}).get("hash")
            if shown:
                self.desk.apply(NAME, self.spec | {"approvedPlan": shown})
            return self.condition(kind)[1] in reasons

        self.wait(f"{kind} is {' or '.join(reasons)}", reached, timeout=200)

    @property
    def status(self) -> dict[str, Any]:
        return self.desk.status(NAME)

    def condition(self, kind: str) -> tuple[str, str, str]:
        """Status, reason and message."""
        for found in self.status.get("conditions", []):
            if found["type"] == kind:
                return found["status"], found["reason"], found.get("message", "")
        return "", "", ""

    def wait(self, what: str, condition: Callable[[], object], timeout: float = 90) -> None:
        assert wait_until(lambda: bool(condition()), timeout=timeout), f"{what}: {self.status}"

    def wait_copying(self, broker: int) -> None:
        self.wait("a copy has begun", lambda: size_on(self.fleet, self.key, broker) > 0)

    def wait_completed(self) -> None:
        self.wait("completed", lambda: self.status.get("phase") == "Completed", timeout=150)

    def wait_clean(self) -> None:
        """No throttle of ours is anywhere, and none is recorded."""
        self.wait("nothing is recorded", lambda: f"{NAME}-throttle" not in self.desk.records(), timeout=120)
        assert self.throttles() == {}

    def throttles(self) -> dict[Any, Any]:
        live = self.fleet.brokers()
        found: dict[Any, Any] = {id: given for id, given in self.fleet.broker_settings(live, RATES).items() if given}
        topics = {key.topic for key in self.fleet.partitions()}
        return found | {topic: given for topic, given in self.fleet.topic_settings(topics, LISTS).items() if given}

    def throttled(self, broker: int) -> bool:
        """Whether an arriving replica has a rate and an entry."""
        rates = self.fleet.broker_settings([broker], RATES)[broker]
        listed = self.fleet.topic_settings([self.key.topic], LISTS)[self.key.topic].get(Role.FOLLOWER.list_setting)
        return Role.FOLLOWER.rate_setting in rates and listed is not None and f"0:{broker}" in listed.value.split(",")
