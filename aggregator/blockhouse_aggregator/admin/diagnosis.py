"""`/history`, `/threads` and `/log-level`: for the person who looks why an aggregator does not do what is expected."""

from __future__ import annotations

import asyncio
import logging
import sys
import threading
import traceback
from collections.abc import Callable, Iterable, Sequence
from types import FrameType

import structlog
from aiohttp import web

from blockhouse.contract import diagnosis as contract
from blockhouse.serving import body, respond, route

log = structlog.get_logger(__name__)


class DiagnosisRoutes:
    """Answers about this process. Only the level of its log can be changed."""

    def __init__(self, history: Callable[[], Sequence[contract.Ownership]]) -> None:
        self._history = history
        self._asked: contract.LogLevelRequest | None = None
        """Who set the level last; None since the start."""

    def all(self) -> Iterable[web.RouteDef]:
        yield route(contract.HISTORY, self._owned)
        yield route(contract.THREADS, self._threads)
        yield route(contract.LOG_LEVEL, self._level)
        yield route(contract.SET_LOG_LEVEL, self._set_level)

    async def _owned(self, _: web.Request) -> web.Response:
        return respond(self._history())

    async def _threads(self, _: web.Request) -> web.Response:
        return respond(contract.Threads(threads=threads(), tasks=tasks()))

    async def _level(self, _: web.Request) -> web.Response:
        return respond(self._answer())

    async def _set_level(self, request: web.Request) -> web.Response:
        asked = self._asked = await body(request, contract.LogLevelRequest)
        before, root = level(), logging.getLogger()
        root.setLevel(min(root.getEffectiveLevel(), logging.WARNING))  # who did it is logged at every level
        log.warning("log.level_changed", before=before, after=asked.level, by=asked.by, why=asked.why)
        root.setLevel(asked.level.upper())
        return respond(self._answer())

    def _answer(self) -> contract.LogLevel:
        asked = self._asked
        who, why = (asked.by, asked.why) if asked is not None else ("", "")
        return contract.LogLevel(level=level(), by=who, why=why)


def level() -> contract.Level:
    """The least severe level that is logged now."""
    number = logging.getLogger().getEffectiveLevel()
    levels: tuple[contract.Level, ...] = ("debug", "info", "warning", "error")
    at_most = [each for each in levels if logging.getLevelNamesMapping()[each.upper()] <= number]
    return at_most[-1] if at_most else "debug"


def threads() -> dict[str, tuple[str, ...]]:
    """By name of each thread, its calls as `file:line function`, the outermost first."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return {f"{names.get(ident, 'unknown')} {ident}": _calls(frame) for ident, frame in sys._current_frames().items()}


def tasks() -> dict[str, tuple[str, ...]]:
    """By name of each task of the running event loop, where it waits, the outermost call first."""
    found = {}
    for task in asyncio.all_tasks():
        frames = task.get_stack()
        lines = [f"{f.f_code.co_filename}:{f.f_lineno} {f.f_code.co_name}" for f in frames]
        found[task.get_name()] = tuple(lines)
    return found


def _calls(frame: FrameType) -> tuple[str, ...]:
    return tuple(f"{each.filename}:{each.lineno} {each.name}" for each in traceback.extract_stack(frame))
