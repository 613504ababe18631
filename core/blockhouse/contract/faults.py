"""What tests and chaos runs ask of fault injection, and what it answers: nothing (404) while `faults.enabled` is off.

Which points and actions there are, and which of them make sense together, is the aggregator's (docs/faults.md).
"""

from __future__ import annotations

from pydantic import Field

from blockhouse.contract.base import Answer, Endpoint, Request


class FaultRequest(Request):
    """A fault that waits for its point to be reached."""

    action: str
    """What happens there: `kill-aggregator`, `kill-worker`, `delay` or `fail`."""
    count: int | None = Field(default=1, ge=1)
    """It strikes so many times, then it is disarmed; null: again and again. Absent: once."""
    skip: int = Field(default=0, ge=0)
    """So many matching passes go through unharmed first. Absent: none."""
    lasts: float | None = Field(default=None, gt=0)
    """Seconds from now after which it is disarmed in any case. Absent or null: never."""
    seconds: float = Field(default=0, ge=0, le=3600)
    """Length of a delay; nothing else takes it. Absent: 0."""
    stream: str = ""
    """Only for `cluster/topic/partition`. Absent or empty: for every one."""
    table: str = ""
    """Only for `database.table`, at the points of an insert. Absent or empty: for every one."""


class ArmedAnswer(Answer):
    """One fault that still waits. What the request did not give has its default."""

    point: str
    """Where it waits, one of the points in docs/faults.md."""
    action: str
    """What happens there."""
    count: int | None
    """How many times it strikes in all; null: without end."""
    skip: int
    """How many passes go through unharmed first."""
    lasts: float | None
    """Seconds from its arming on after which it is disarmed; null: never."""
    seconds: float
    """Length of a delay; 0: it is none."""
    stream: str
    """The only stream it is for; empty: all."""
    table: str
    """The only table it is for; empty: all."""
    passes: int
    """How often its point was passed since."""
    strikes: int
    """How often it struck."""


class FaultsAnswer(Answer):
    """The state of fault injection."""

    armed: tuple[ArmedAnswer, ...]
    """What still waits, in the order of the points."""
    struck: dict[str, int]
    """By point, how often a fault has struck since the start; a point without one is absent."""


_OFF = {401: "The token is missing or wrong.", 404: "Fault injection is off, or there is no such point."}

FAULTS = Endpoint("GET", "/faults", "For tests: the faults that are armed.", FaultsAnswer, refusals=_OFF)
ARM = Endpoint(
    "PUT",
    "/faults/{point}",
    "For tests: arm a fault in place of what was armed at the point.",
    FaultsAnswer,
    FaultRequest,
    refusals=_OFF | {400: "The request is malformed, or means nothing at this point."},
)
DISARM = Endpoint("DELETE", "/faults/{point}", "For tests: disarm one point.", FaultsAnswer, refusals=_OFF)
DISARM_ALL = Endpoint("DELETE", "/faults", "For tests: disarm every point.", FaultsAnswer, refusals=_OFF)
ENDPOINTS = (FAULTS, ARM, DISARM, DISARM_ALL)
