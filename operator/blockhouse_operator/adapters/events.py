"""Events about resources, few of them: those of one reason about one object within a minute are one that counts.

The first is written at once. What follows is collected for some seconds and then written together, so that a shard that
creates a table at each of its replicas writes two Events and not one for each. What a process that ends has collected
is lost: no Event is worth a reconcile.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

import structlog

from blockhouse.errors import BlockhouseError, Permanent, Retryable
from blockhouse_operator.adapters.kinds import EVENT, Object
from blockhouse_operator.api.labels import FIELD_MANAGER

log = structlog.get_logger(__name__)

WINDOW_SECONDS = 60.0
"""How long after the first one others of its reason are counted with it."""
TOGETHER_SECONDS = 5.0
"""How long those are collected before they are written."""
LONGEST_MESSAGE = 1024
"""Characters; the API server refuses more."""

Key = tuple[str, str, str]
"""UID of the object, type and reason."""


class Writer(Protocol):
    """How Events are written; both raise Retryable, Permanent or LeadershipLost."""

    async def create_event(self, event: Object) -> str:
        """Returns its name."""

    async def change_event(self, namespace: str, name: str, change: Object) -> None: ...


@dataclass
class _Series:
    """Events that are written as one."""

    name: str
    until: float
    messages: list[str]
    count: int = 1
    at: str = ""
    writing: asyncio.Task[None] | None = field(default=None, repr=False)


class Events:
    """Of one process; on one loop."""

    def __init__(self, writer: Writer, clock: Callable[[], float]) -> None:
        self._writer = writer
        self._clock = clock
        self._series: dict[Key, _Series] = {}

    async def emit(self, about: Object, *, warning: bool, reason: str, message: str, at: str) -> None:
        """An Event about the object, at an RFC 3339 time. A failure is logged."""
        self._forget()
        severity = "Warning" if warning else "Normal"
        key, now = (about["metadata"]["uid"], severity, reason), self._clock()
        known = self._series.get(key)
        if known is None:
            event = _event(about, severity, reason, message, at)
            try:
                name = await self._writer.create_event(event)
            except (Retryable, Permanent) as error:
                _not_sent(reason, error)
                return
            self._series[key] = _Series(name, now + WINDOW_SECONDS, [message])
            return
        known.count, known.at = known.count + 1, at
        if message not in known.messages:
            known.messages.append(message)
        if known.writing is None or known.writing.done():
            known.writing = asyncio.create_task(self._grow(about["metadata"]["namespace"], reason, known))

    async def _grow(self, namespace: str, reason: str, series: _Series) -> None:
        await asyncio.sleep(TOGETHER_SECONDS)
        message = _cut("; ".join(series.messages))
        change = {"count": series.count, "lastTimestamp": series.at, "message": message}
        try:
            await self._writer.change_event(namespace, series.name, change)
        except BlockhouseError as error:
            _not_sent(reason, error)

    def _forget(self) -> None:
        """They are in the order in which they end."""
        now = self._clock()
        while self._series and now >= next(iter(self._series.values())).until:
            del self._series[next(iter(self._series))]


def _event(about: Object, severity: str, reason: str, message: str, at: str) -> dict[str, Any]:
    meta = about["metadata"]
    return {
        "apiVersion": EVENT.api_version,
        "kind": EVENT.name,
        "metadata": {"generateName": f"{meta['name']}.", "namespace": meta["namespace"]},
        "involvedObject": {
            "apiVersion": about["apiVersion"],
            "kind": about["kind"],
            **{key: meta[key] for key in ("name", "namespace", "uid")},
        },
        "type": severity,
        "reason": reason,
        "message": _cut(message),
        "source": {"component": FIELD_MANAGER},
        "reportingComponent": FIELD_MANAGER,
        "firstTimestamp": at,
        "lastTimestamp": at,
        "count": 1,
    }


def _cut(message: str) -> str:
    return message if len(message) <= LONGEST_MESSAGE else f"{message[: LONGEST_MESSAGE - 3]}..."


def _not_sent(reason: str, error: BlockhouseError) -> None:
    log.warning("event_not_sent", reason=reason, error=str(error))
