"""The driver's end of the gate, for tasks that work on a stream."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from blockhouse.config.pipeline import Gate
from blockhouse.gate.server import GateServer, TaskSession
from blockhouse_aggregator.gate.messages import FROM_TASK, FromDriver, FromTask

StreamSession = TaskSession[FromTask, FromDriver]


class StreamGate(GateServer[FromTask, FromDriver]):
    """Hands each task to the owner of its stream."""

    def __init__(self, config: Gate, key: bytes, accept: Callable[[StreamSession], Awaitable[None]]) -> None:
        super().__init__(config, key, FROM_TASK, accept)
