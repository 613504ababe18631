"""What becomes of blocked blocks: tried again when their table has changed, and now and then; or an operator decides.

A retry is exactly what a takeover does. A decision names one block by its bounds: about any other it says nothing.
It must never forget a block on the strength of a `recut` unless no row of it is stored and none can come any more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Protocol

import structlog

from blockhouse.errors import Retryable
from blockhouse.metadata.model import InFlight
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import Decision
from blockhouse_aggregator.protocol.events import Alarm, Condemned, Event, Recut, Released, Stored
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.reporting import StreamReport
from blockhouse_aggregator.runtime.storing import BlockToStore, Verdict
from blockhouse_aggregator.runtime.surroundings import Retry, Surroundings

log = structlog.get_logger(__name__)

FIRST_RETRY, LAST_RETRY = 30.0, 600.0
POLL = 5.0
"""Seconds between looks for decisions while a block is blocked."""
_ACTION = re.compile(r"(stored|abandoned|absent|recut) (\d+)-(\d+)")


class Owner(Protocol):
    """The part of a stream's owner that is needed here."""

    stream: StreamId
    around: Surroundings
    state: StreamState | None
    report: StreamReport

    async def apply(self, event: Event) -> None: ...
    async def flush(self, *, close_window: bool = False) -> None: ...


class Blocks(Protocol):
    """The part of the blocks in flight that is needed here."""

    retries: dict[int, Retry]

    def to_store(self, table_id: int, intent: InFlight, *, fresh: bool) -> BlockToStore | None: ...


@dataclass(slots=True)
class _Seen:
    """A block since it was first seen blocked: `version` of the table then, when to try again, after which wait."""

    begin: int
    since: float
    version: int
    at: float
    wait: float = FIRST_RETRY


@dataclass(slots=True)
class BlockedBlocks:
    """Looks after the blocked blocks of one stream. Used on the event loop only."""

    owner: Owner
    blocks: Blocks
    _seen: dict[int, _Seen] = field(default_factory=dict)
    _polled: float = 0.0

    async def look(self) -> None:
        """Release or settle what can be. Never raises Retryable: it looks again soon."""
        await self._block_hopeless()
        state, now = self.owner.state, loop_time()
        if state is None:
            return
        present = {t.table: t.block for t in state.in_flight if t.block is not None and t.block.reason}
        self._seen = {
            t: seen for t, seen in self._seen.items() if t in present and present[t].intent.begin == seen.begin
        }
        poll = now - self._polled >= POLL
        for table, block in present.items():
            if block.stage is Stage.BLOCKED:
                try:
                    await self._look_at(table, block, now, poll=poll)
                except Retryable as error:
                    log.warning("block.decision_waits", stream=self.owner.report.label, error=str(error))
        if poll and present:
            self._polled = now

    async def _block_hopeless(self) -> None:
        """A block that cannot be sent before somebody has mended its table must be seen to wait, and for what."""
        catalog = self.owner.around.catalog
        for entry in self.owner.state.in_flight if self.owner.state is not None else ():
            block, reason = entry.block, catalog.why_not(entry.table)
            if block is None or block.stage is not Stage.REPLAY or not reason:
                continue
            if not catalog.can_rebuild(entry.table, block.intent.encoded_with):
                await self.owner.apply(Condemned(entry.table, reason))

    async def _look_at(self, table: int, block: Block, now: float, *, poll: bool) -> None:
        catalog = self.owner.around.catalog
        known = catalog.by_id(table)
        version = known.version if known is not None else 0
        seen = self._seen.setdefault(table, _Seen(block.intent.begin, now, version, now + FIRST_RETRY))
        if poll:
            decision = await self.owner.around.outside.markers.block_decision(self.owner.stream, catalog.name(table))
            if decision is not None and await self._carry_out(table, block, decision, now - seen.since):
                return
        if known is not None and not known.held and (version > seen.version or now >= seen.at):
            seen.version, seen.wait = version, min(LAST_RETRY, 2 * seen.wait)
            seen.at = now + seen.wait
            self.blocks.retries.pop(table, None)
            log.info("block.released", stream=self.owner.report.label, table=known.history.name, reason=block.reason)
            await self.owner.apply(Released(table))

    async def _carry_out(self, table: int, block: Block, decision: Decision, waited: float) -> bool:
        """True when the decision was about this block and is carried out, or cannot be yet."""
        name, intent = self.owner.around.catalog.name(table), block.intent
        asked = _ACTION.fullmatch(decision.action)
        if asked is None or (int(asked[2]), int(asked[3])) != (intent.begin, intent.end):
            return False
        deed = asked[1]
        again = deed in ("absent", "recut")
        if again:
            refusal = await self._not_absent(table, block, waited, proof=deed == "recut")
            if refusal.condemned:
                self.owner.report.alarm(Alarm("RecutRefused", refusal.message, table))
                await self.owner.around.outside.markers.consume_block_decision(self.owner.stream, name, decision)
            if not refusal.stored:
                return True
        text = f"block [{intent.begin}, {intent.end}]: {deed}, as decided by {decision.by}"
        self.owner.report.alarm(Alarm("BlockDecided", text, table))
        begin, end = intent.begin, intent.end
        await self.owner.apply(Recut(table, begin, end) if again else Stored(table, begin, end))
        await self.owner.flush()
        if self._recorded(table, begin):
            await self.owner.around.outside.markers.consume_block_decision(self.owner.stream, name, decision)
        return True

    async def _not_absent(self, table: int, block: Block, waited: float, *, proof: bool) -> Verdict:
        """A verdict that is `stored` when the block may be cut anew: no insert of it can still run and, where proof is
        asked for, provenance finds no row of it."""
        storing = self.owner.around.storing
        if waited <= storing.lifetime:
            return Verdict(message="an earlier owner's insert may still be running")
        to_store = self.blocks.to_store(table, block.intent, fresh=False)
        if not proof:
            return Verdict(stored=True)
        if to_store is None:
            unknown = self.owner.around.catalog.why_not(table)
            return Verdict(condemned=unknown, message="the server has no such table: nothing can be proved")
        return await storing.absent(to_store)

    def _recorded(self, table: int, begin: int) -> bool:
        """The broker does not hold the block any more."""
        recorded = self.owner.state.recorded if self.owner.state is not None else None
        return recorded is not None and not any(
            e.table == table and e.in_flight is not None and e.in_flight.begin == begin for e in recorded.tables
        )
