"""The break-glass of a stream that has stopped: a person accepts the reason, and it starts although rows may be missing
or doubled. The one way to that, for `blockhouse streams accept` and for the admin API.

A decision about another problem than the present one must never wait for the day on which it fits.
"""

from __future__ import annotations

import re
import time
from dataclasses import replace
from typing import Literal

from blockhouse.errors import Blocked
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import Decision
from blockhouse_aggregator.protocol import takeover
from blockhouse_aggregator.protocol.takeover import Facts, NeedsSurvey, Start, Stop

_ACCEPT = "accept "
_ACCEPTED = re.compile(r"(\w+)(?: from (\d+))?")


class NotAcceptable(Blocked):
    """Nothing was recorded. `about` is which of the answers was wrong."""

    def __init__(self, about: Literal["stream", "reason", "offset"], message: str) -> None:
        super().__init__(message, reason="NotAcceptable")
        self.about = about


def decision(reason: str, offset: int | None, by: str, why: str, now_ms: int) -> Decision:
    """What is recorded: `accept REASON`, or `accept REASON from OFFSET`."""
    action = f"{_ACCEPT}{reason}" if offset is None else f"{_ACCEPT}{reason} from {offset}"
    return Decision(action=action, by=by, at_ms=now_ms, why=why)


def accepted(facts: Facts, found: Decision | None) -> Facts:
    """The facts with what was decided about the stream; None, or a decision about something else: nothing."""
    if found is None or not found.action.startswith(_ACCEPT):
        return facts
    answer = _ACCEPTED.fullmatch(found.action.removeprefix(_ACCEPT))
    if answer is None:
        return facts
    offset = int(answer[2]) if answer[2] else None
    return replace(facts, accepted=answer[1], accepted_from=offset, accepted_by=_by(found))


def _by(found: Decision) -> str:
    at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.at_ms / 1000))
    return f"{found.by} at {at}" + (f" ({found.why})" if found.why else "")


def decide(facts: Facts) -> Start | Stop | NeedsSurvey:
    """As the stream's next owner would."""
    return takeover.take_over(facts, replica="", epoch=0, now_ms=0)


def would(stream: StreamId, facts: Facts, reason: str, offset: int | None) -> str:
    """What the stream does once `reason` is accepted, as a sentence. Raises NotAcceptable when it cannot be."""
    stop = decide(facts)
    log_range = f"[{facts.log_begin}, {facts.log_end})"
    if not isinstance(stop, Stop):
        raise NotAcceptable("stream", f"{stream} does not stand still: there is nothing to accept")
    if stop.reason != reason:
        raise NotAcceptable("reason", f"{stream} stands still for another reason: {stop.reason}: {stop.message}")
    if isinstance(decide(replace(facts, accepted=reason, accepted_from=offset)), Stop):
        raise NotAcceptable("reason", f"{reason} cannot be accepted: remove its cause")
    if reason == takeover.MARKER_MISSING:
        if offset is not None:
            raise NotAcceptable("offset", f"{reason} lets a stream continue where it is: leave it out")
        return f"continue from offset {facts.offset}, which must be its newest, and get a marker"
    if offset is not None and offset > facts.log_end:
        raise NotAcceptable("offset", f"{offset} is beyond the log, {log_range}")
    return f"start afresh at offset {begin(facts, offset)} of {log_range}"


def begin(facts: Facts, offset: int | None) -> int:
    """Where a stream starts afresh that is asked to at `offset`."""
    return facts.log_begin if offset is None else max(offset, facts.log_begin)
