"""Carries an injection out in the process that is at the point. The only module that kills anything: itself."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import Iterable

from blockhouse.errors import Retryable
from blockhouse_aggregator.faults.model import Action, Injection, Point

KILLS = frozenset({Action.KILL_AGGREGATOR, Action.KILL_WORKER})


def strike(injection: Injection | None) -> None:
    """Die, block this thread, or raise Retryable, as ordered; nothing without an injection."""
    if injection is None:
        return
    if injection.action in KILLS:
        os.kill(os.getpid(), signal.SIGKILL)
    if injection.action is Action.DELAY:
        time.sleep(injection.seconds)
    if injection.action is Action.FAIL:
        raise injected(injection)


def strike_at(point: Point, injections: Iterable[Injection]) -> None:
    """Carry out what an order or a grant brought along for this point."""
    for injection in injections:
        if injection.point is point:
            strike(injection)


async def strike_loop(injection: Injection | None) -> None:
    """As `strike`, for the event loop: a delay holds up only the caller."""
    if injection is not None and injection.action is Action.DELAY:
        await asyncio.sleep(injection.seconds)
    else:
        strike(injection)


def injected(injection: Injection) -> Retryable:
    return Retryable(f"fault injected at {injection.point}")
