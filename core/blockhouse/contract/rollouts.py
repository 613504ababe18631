"""What a rollout asks of an aggregator: compare a table with its declaration, hold it, change it, release it; restart.

The answer to a pause reports that it is recorded; that it is obeyed is seen on every replica's status page: the table
names the rollout, and no stream has a block of it in flight.
"""

from __future__ import annotations

from hashlib import sha256

from pydantic import ConfigDict, Field

from blockhouse.contract.base import Answer, Endpoint, Request


class HoldRequest(Request):
    """Hold a table for a rollout, or release it."""

    rollout: str = Field(min_length=1, max_length=200)
    """The rollout's name for what it does."""


class HoldAnswer(Answer):
    """The pause that counts, which is an older one of the same rollout if there is one."""

    model_config = ConfigDict(alias_generator=None)

    rollout: str
    """The rollout that holds the table."""
    since_ms: int
    """Since when, Unix milliseconds. In snake case since the first contract."""


class ReleaseAnswer(Answer):
    """What became of a pause."""

    released: bool
    """False: it had ended before."""


class DifferenceRequest(Request):
    """Compare a table with its declaration."""

    ddl: str = Field(min_length=1, max_length=1 << 20)
    """The CREATE TABLE statement."""


def declaration_digest(ddl: str) -> str:
    """Names a declaration in a status and in reports of zones, in 16 characters."""
    return sha256(ddl.encode()).hexdigest()[:16]


class ApplyRequest(HoldRequest, DifferenceRequest):
    """Create a table, or add its columns."""

    restart: bool = False
    """The aggregators of the shard are to restart after a change. Absent: they are not."""


class DifferenceAnswer(Answer):
    """What is between the replica's table and its declaration: nothing, columns to add, or what must not be changed."""

    exists: bool
    """Whether the replica has the table."""
    added: tuple[str, ...]
    """Columns that it lacks."""
    refused: tuple[str, ...]
    """Why it cannot become what is declared; empty when it can."""
    statement: str = ""
    """The SQL that would be run here; empty when there is none. An ALTER reaches every replica."""


class RestartRequest(Request):
    """End in order, unless this process was started after the demand."""

    number: int = Field(ge=0)
    """The demand that is obeyed; 0 is none."""


class RestartAnswer(Answer):
    """What the aggregator does about a demand."""

    ends: bool
    """Whether it ends; false: it was started after the demand."""


CONFLICT, UNUSABLE = 409, 422
_REFUSALS: dict[int, str] = {
    400: "The request is malformed.",
    401: "The token is missing or wrong.",
    503: "The aggregator starts, or a server is unavailable: ask again.",
}
_CHANGE = _REFUSALS | {CONFLICT: "It cannot be done now: another rollout, no pause, or a block in flight."}
_DDL = {UNUSABLE: "The declaration cannot be used."}

HOLD = Endpoint(
    "PUT",
    "/tables/{table}/hold",
    "Hold a table in every stream of the shard.",
    HoldAnswer,
    HoldRequest,
    refusals=_CHANGE,
)
RELEASE = Endpoint("DELETE", "/tables/{table}/hold", "End a pause.", ReleaseAnswer, HoldRequest, refusals=_CHANGE)
DIFFERENCE = Endpoint(
    "POST",
    "/tables/{table}/difference",
    "Compare a table with its declaration; changes nothing.",
    DifferenceAnswer,
    DifferenceRequest,
    refusals=_REFUSALS | _DDL,
)
APPLY = Endpoint(
    "PUT",
    "/tables/{table}",
    "Create a table at this replica, or add its columns; answers what was missing.",
    DifferenceAnswer,
    ApplyRequest,
    refusals=_CHANGE | _DDL,
)
RESTART = Endpoint("POST", "/restart", "End in order.", RestartAnswer, RestartRequest, refusals=_REFUSALS)
ENDPOINTS = (HOLD, RELEASE, DIFFERENCE, APPLY, RESTART)
