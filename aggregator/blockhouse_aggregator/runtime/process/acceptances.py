"""What the admin API accepts of streams that have stopped here, in the form and under the rules of `acceptance.py`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol

import structlog

from blockhouse.contract.interventions import Acceptance, AcceptRequest
from blockhouse.streams import StreamId
from blockhouse_aggregator.protocol import takeover
from blockhouse_aggregator.protocol.takeover import Stop
from blockhouse_aggregator.runtime.ports import Ports
from blockhouse_aggregator.runtime.stream.acceptance import NotAcceptable, decision, would
from blockhouse_aggregator.runtime.stream.resumption import present_facts

log = structlog.get_logger(__name__)


class Stopped(Protocol):
    """An owner, as far as it has stopped."""

    epoch: int
    stop: Stop | None


class Acceptances:
    """The admin API's side. On the event loop; `owners` are those of this aggregator."""

    def __init__(self, ports: Ports, owners: Mapping[StreamId, Stopped], now_ms: Callable[[], int]) -> None:
        self._ports = ports
        self._owners = owners
        self._now_ms = now_ms

    def owns(self, stream: StreamId) -> bool:
        """Whether this aggregator owns the stream."""
        return stream in self._owners

    async def accept(self, stream: StreamId, asked: AcceptRequest) -> Acceptance:
        """Record the decision; the owner takes it up within seconds. Raises NotAcceptable, Retryable, and Blocked when
        the stream is another's by now."""
        owner = self._owners[stream]
        if owner.stop is None:
            raise NotAcceptable("stream", f"{stream} does not stand still: there is nothing to accept")
        facts = await present_facts(self._ports, stream, owner.epoch)
        text = would(stream, facts, asked.reason, asked.offset)
        if asked.reason == takeover.LOG_TRUNCATED:
            text += "; rows of what the log has lost answer for new messages: `blockhouse streams accept` names them"
        made = decision(asked.reason, asked.offset, asked.by, asked.why, self._now_ms())
        await self._ports.markers.accept(stream, made)
        log.warning("stream.accepted", stream=str(stream), action=made.action, by=made.by, why=made.why)
        return Acceptance(
            stream=str(stream), reason=asked.reason, would=text, by=asked.by, why=asked.why, at_ms=made.at_ms
        )
