"""What `blockhouse topics throttle run --http` answers: fixed rates of brokers, and the rates in force.

The paths of kafka-kit's autothrottle are answered too, for scripts that have them: `rate` is a number of MB/s there,
and an error has its own code.
"""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from blockhouse.contract.base import Answer, Endpoint, Request


class OverrideRequest(Request):
    """Fix the rate of all brokers, or of one, exactly and at once."""

    rate: str = Field(max_length=24)
    """Bytes a second with a unit: `50M`, `50MB/s`, `64Mi` or `10Gbit/s`."""
    auto_remove: bool = False
    """Forget it when nothing moves any more. Absent: it stays."""
    expires: str = Field(default="", max_length=24)
    """Forget it after so long: `30m`, `2h`, `1d`. Absent: it stays."""


class OverrideAnswer(Answer):
    """A fixed rate."""

    rate: int
    """Bytes a second."""
    auto_remove: bool
    """Whether it is forgotten when nothing moves any more."""
    expires_at: str | None
    """UTC to the second, such as `2026-11-21T09:00:00Z`; null: never."""


class BrokerRate(Answer):
    """The throttle of one broker in one role, as it was at the last interval."""

    broker: int
    """Its id."""
    role: Literal["leader", "follower"]
    """Kafka's word: a leader sends replicas, a follower receives them."""
    rate: int
    """Bytes a second that it may copy."""
    present: int | None
    """What the broker had set before; null: nothing."""
    floor: float
    """Least rate at which its moves end."""
    capacity: float | None
    """What its network carries; null: unknown."""
    other: float | None
    """What clients use of it; null: unknown."""
    moved: float | None
    """What was copied lately; null: not measured."""
    remaining: float | None
    """Bytes left; null: unknown."""
    eta: float | None
    """Seconds left; null: unknown, or it does not end at this rate."""
    stalled: bool
    """Whether its moves do not end at the rate that it may have."""
    why: str
    """What decided the rate."""


class ThrottleAnswer(Answer):
    """Fixed rates, and rates of brokers that take part in moves."""

    cluster: str
    """Id of the Kafka cluster."""
    everywhere: OverrideAnswer | None
    """Of all brokers that have none of their own; null: rates follow the load."""
    brokers: dict[str, OverrideAnswer]
    """Of single brokers, by id."""
    rates: tuple[BrokerRate, ...]
    """Empty while nothing moves."""


class ForgottenAnswer(Answer):
    """What became of fixed rates."""

    forgotten: int
    """How many were forgotten."""


_REFUSALS: dict[int, str] = {
    400: "The request is malformed; the answer states how.",
    401: "The token is missing or wrong.",
    503: "The record cannot be read or written.",
}
_NONE = {404: "No such rate is fixed, or the path names no broker."}
_KAFKA_KIT = {"rate": "MB/s, an integer above 0.", "autoremove": "`true` or `false`: forget it when nothing moves."}

SHOW = Endpoint("GET", "/throttle", "Fixed rates, and rates in force.", ThrottleAnswer, refusals=_REFUSALS)
SHOW_BROKER = Endpoint(
    "GET", "/throttle/{broker}", "The fixed rate of a broker.", OverrideAnswer, refusals=_REFUSALS | _NONE
)
FIX = Endpoint("PUT", "/throttle", "Fix the rate of all brokers.", OverrideAnswer, OverrideRequest, refusals=_REFUSALS)
FIX_BROKER = Endpoint(
    "PUT",
    "/throttle/{broker}",
    "Fix the rate of a broker.",
    OverrideAnswer,
    OverrideRequest,
    refusals=_REFUSALS | _NONE,
)
FORGET = Endpoint("DELETE", "/throttle", "Forget the rate of all brokers.", ForgottenAnswer, refusals=_REFUSALS | _NONE)
FORGET_BROKER = Endpoint(
    "DELETE", "/throttle/{broker}", "Forget the rate of a broker.", ForgottenAnswer, refusals=_REFUSALS | _NONE
)
KIT_FIX = Endpoint(
    "POST", "/throttle", "kafka-kit's: fix the rate.", OverrideAnswer, query=_KAFKA_KIT, refusals=_REFUSALS
)
KIT_FIX_BROKER = Endpoint(
    "POST",
    "/throttle/{broker}",
    "kafka-kit's: fix the rate of a broker.",
    OverrideAnswer,
    query=_KAFKA_KIT,
    refusals=_REFUSALS | _NONE,
)
KIT_FORGET = Endpoint(
    "POST", "/throttle/remove", "kafka-kit's: forget the rate of all.", ForgottenAnswer, refusals=_REFUSALS | _NONE
)
KIT_FORGET_BROKER = Endpoint(
    "POST",
    "/throttle/remove/{broker}",
    "kafka-kit's: forget the rate of a broker, or with `all` that of each single one.",
    ForgottenAnswer,
    refusals=_REFUSALS | _NONE,
)
ENDPOINTS = (
    SHOW, FIX, FORGET, KIT_FIX, KIT_FORGET, KIT_FORGET_BROKER, SHOW_BROKER, FIX_BROKER, FORGET_BROKER, KIT_FIX_BROKER,
)  # fmt: skip
