"""Where a fault can happen, what it does, and how often: the words of the admin API and of the gate. Values only."""

from __future__ import annotations

from enum import StrEnum

from pydantic import BaseModel, ConfigDict, model_validator

from blockhouse.contract.faults import FaultRequest


class Point(StrEnum):
    """A moment of an aggregator's work at which a fault may strike."""

    BEFORE_COMMIT = "before-commit"
    """The intent is about to be sent to Kafka."""
    AFTER_COMMIT = "after-commit"
    """Kafka has the intent; nothing of it is granted yet."""
    BEFORE_INSERT = "before-insert"
    """The worker is about to send a granted block; its last check of the deadline is over."""
    AFTER_INSERT = "after-insert"
    """The server answered "ok"; no one knows yet."""
    DURING_FETCH = "during-fetch"
    """A scan has read its messages; nothing of them is sealed yet."""
    DURING_REPLAY = "during-replay"
    """A block was read again from the log; it is not held for insertion yet."""
    ON_REVOKE = "on-revoke"
    """In the consumer group's callback that takes a stream away."""


class Action(StrEnum):
    """What happens at the point."""

    KILL_AGGREGATOR = "kill-aggregator"
    """SIGKILL the driver process."""
    KILL_WORKER = "kill-worker"
    """SIGKILL the Python worker that is at the point."""
    DELAY = "delay"
    """Wait `seconds` at the point, then continue as if nothing had happened."""
    FAIL = "fail"
    """Make the step fail: see the table in docs/faults.md for what that means at each point."""


_DRIVER = frozenset({Action.KILL_AGGREGATOR, Action.DELAY, Action.FAIL})
_INSERT = frozenset(Action)
_READ = frozenset({Action.KILL_WORKER, Action.DELAY, Action.FAIL})
ACTIONS: dict[Point, frozenset[Action]] = {
    Point.BEFORE_COMMIT: _DRIVER,
    Point.AFTER_COMMIT: _DRIVER,
    Point.BEFORE_INSERT: _INSERT,
    Point.AFTER_INSERT: _INSERT,
    Point.DURING_FETCH: _READ,
    Point.DURING_REPLAY: _READ,
    Point.ON_REVOKE: frozenset({Action.KILL_AGGREGATOR, Action.DELAY}),
}
"""What makes sense at each point."""


class Injection(BaseModel):
    """One fault that happens now. Travels to a worker inside an order or a grant."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    point: Point
    action: Action
    seconds: float = 0


class ArmedFault(FaultRequest):
    """A `FaultRequest` at its point, which makes sense there, and waits for the point to be reached."""

    model_config = ConfigDict(strict=False)  # the action is a text in the request

    point: Point
    action: Action

    @model_validator(mode="after")
    def _sensible(self) -> ArmedFault:
        if self.action not in ACTIONS[self.point]:
            possible = ", ".join(sorted(ACTIONS[self.point]))
            raise ValueError(f"{self.action} is not possible at {self.point}: choose from {possible}")
        if (self.action is Action.DELAY) != (self.seconds > 0):
            raise ValueError("a delay needs seconds above 0, nothing else takes them")
        if self.table and self.point not in {Point.BEFORE_INSERT, Point.AFTER_INSERT}:
            raise ValueError(f"at {self.point} no single table is concerned: leave table out")
        return self

    def concerns(self, stream: str, table: str) -> bool:
        """Whether it strikes this stream and table; an empty name of its own means any."""
        return self.stream in ("", stream) and self.table in ("", table)

    def injection(self) -> Injection:
        """What is sent to the process that is at the point."""
        return Injection(point=self.point, action=self.action, seconds=self.seconds)
