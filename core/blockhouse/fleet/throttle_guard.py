"""A throttler beside an execution: what starts is throttled first, and rates follow the load while it runs."""

from __future__ import annotations

import time
from collections.abc import Callable

import structlog

from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.throttling import CONFIRM_SECONDS, Targets, Throttler

log = structlog.get_logger(__name__)
LOOKS = 4
"""At a cluster whose plan is not carried on: as many as it takes to remove throttles and see them gone."""


class IntervalGuard:
    """A throttler as the guard of an execution: it looks again every `interval` seconds, and cleans up at the end."""

    def __init__(self, throttler: Throttler, clock: Callable[[], float], interval: float) -> None:
        self._throttler = throttler
        self._clock = clock
        self._interval = interval
        self._due = clock()

    def before_start(self, starting: Targets) -> None:
        self._throttler.before_start(starting)

    def after_look(self) -> None:
        if self._clock() >= self._due:
            self._throttler.round()
            self._due = self._clock() + self._interval

    def finished(self) -> None:
        if self._throttler.round() and self._throttler.unconfirmed:
            raise Retryable("throttles were removed, and are looked for once more", after=CONFIRM_SECONDS)

    def abandoned(self) -> None:
        """Remove the throttles that nothing needs; what moves keeps its own, and the record names them."""
        for _ in range(LOOKS):
            try:
                if not (self._throttler.round() and self._throttler.unconfirmed):
                    return
            except (Retryable, Permanent) as error:
                log.warning("throttles_left", error=str(error))
            time.sleep(CONFIRM_SECONDS)
