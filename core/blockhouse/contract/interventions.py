"""What a person does to a running aggregator by hand: drain it, let it resume, start a stream that has stopped.

Each states who asks and why; that is logged and shown, for the next person who wonders.
"""

from __future__ import annotations

from pydantic import Field

from blockhouse.contract.base import Answer, Endpoint, PersonalRequest, ReasonedRequest


class ResumeRequest(PersonalRequest):
    """End a drain."""


class DrainRequest(ReasonedRequest):
    """Drain an aggregator."""


class DrainState(Answer):
    """Whether the aggregator is drained, and how far it is."""

    drained: bool
    """Whether it is to own no stream until it is resumed, also after a restart."""
    by: str
    """Who drained it; empty: it is not."""
    why: str
    """Why; empty: it is not."""
    since_ms: int
    """When that was recorded, Unix milliseconds; 0: it is not drained."""
    streams: int
    """Streams that it owns now. Drained and 0: others have them all."""
    in_flight: int
    """Blocks of these that are not acknowledged yet."""


class AcceptRequest(ReasonedRequest):
    """Start a stream although something is wrong with it: rows may be missing or doubled afterwards."""

    reason: str = Field(min_length=1, max_length=100)
    """The reason for which it has stopped, `stopped.reason` of its status: a decision about another one is refused."""
    offset: int | None = Field(default=None, ge=0, le=(1 << 63) - 1)
    """Where it is to start. Absent: at the begin of its log."""


class Acceptance(Answer):
    """What is recorded and will be done within seconds, by whichever aggregator owns the stream then."""

    stream: str
    """`cluster/topic/partition`."""
    reason: str
    """What was accepted."""
    would: str
    """What the stream does then."""
    by: str
    """Who decided."""
    why: str
    """Why."""
    at_ms: int
    """When, Unix milliseconds."""


CONFLICT = 409
_REFUSALS: dict[int, str] = {
    400: "The request is malformed.",
    401: "The token is missing or wrong.",
    503: "The aggregator starts, or a server is unavailable: ask again.",
}

DRAIN_STATE = Endpoint("GET", "/drain", "Whether it is drained.", DrainState, refusals=_REFUSALS)
DRAIN = Endpoint(
    "PUT",
    "/drain",
    "Finish what is in flight, leave all streams to others, and stay up without one.",
    DrainState,
    DrainRequest,
    refusals=_REFUSALS,
)
RESUME = Endpoint("DELETE", "/drain", "Own streams again.", DrainState, ResumeRequest, refusals=_REFUSALS)
ACCEPT = Endpoint(
    "PUT",
    "/streams/{cluster}/{topic}/{partition}/acceptance",
    "Break glass: start a stream that has stopped, although rows may be missing or doubled.",
    Acceptance,
    AcceptRequest,
    refusals=_REFUSALS
    | {
        404: "This aggregator does not own the stream.",
        CONFLICT: "It has not stopped, or for another reason, or its cause cannot be accepted.",
    },
)
ENDPOINTS = (DRAIN_STATE, DRAIN, RESUME, ACCEPT)
