"""What becomes of stalled blocks: tried again when their table has changed, and now and then; or an operator decides.

A retry is exactly what a takeover does. A decision names one block by its bounds: it applies to no other.
It must never forget a block on the strength of a `recut` unless no row of it is stored and none can come any more.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field, replace
from typing import Protocol, assert_never

import structlog

from blockhouse.errors import Retryable
from blockhouse.metadata.model import InFlight
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import Decision
from blockhouse_aggregator.protocol.events import Alarm, Condemned, Event, Recut, Released, Stored
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState
from blockhouse_aggregator.runtime.clock import loop_time
from blockhouse_aggregator.runtime.stream.block import BlockToStore
from blockhouse_aggregator.runtime.stream.context import StreamContext
from blockhouse_aggregator.runtime.stream.outcomes import Absent, CannotTell, Partial, Provenance, Whole
from blockhouse_aggregator.runtime.stream.reporting import StreamReport

log = structlog.get_logger(__name__)

FIRST_RETRY, LAST_RETRY = 30.0, 600.0
POLL = 5.0
"""Seconds between reads of decisions while a block is stalled."""
_ACTION = re.compile(r"(stored|abandoned|absent|recut) (\d+)-(\d+)")


class Owner(Protocol):
    """The part of a stream's owner that is needed here."""

    stream: StreamId
    context: StreamContext
    state: StreamState | None
    report: StreamReport

    async def apply(self, event: Event) -> None: ...
    async def flush(self, *, close_window: bool = False) -> None: ...


class Blocks(Protocol):
    """The part of the blocks in flight that is needed here."""

    def replay_now(self, table_id: int) -> None: ...
    def to_store(self, table_id: int, intent: InFlight, topic_id: str, *, fresh: bool) -> BlockToStore | None: ...


@dataclass(frozen=True, slots=True)
class _Seen:
    """A block since it was first seen stalled: `version` of the table then, when to try again, after which wait."""

    begin: int
    since: float
    version: int
    at: float
    wait: float = FIRST_RETRY

    def tried(self, version: int, now: float) -> _Seen:
        """The same block, tried again at `now` with the table at `version`."""
        wait = min(LAST_RETRY, 2 * self.wait)
        return replace(self, version=version, wait=wait, at=now + wait)


@dataclass(slots=True)
class StalledBlocks:
    """Retries and settles the stalled blocks of one stream. Used on the event loop only."""

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
                    await self._check(table, block, now, poll=poll)
                except Retryable as error:
                    log.warning("block.decision_waits", stream=self.owner.report.label, error=str(error))
        if poll and present:
            self._polled = now

    async def _block_hopeless(self) -> None:
        """A block that cannot be sent before a person fixes its table must be shown as stalled, with the reason."""
        catalog = self.owner.context.catalog
        for entry in self.owner.state.in_flight if self.owner.state is not None else ():
            block, reason = entry.block, catalog.why_not(entry.table)
            if block is None or block.stage is not Stage.REPLAY or not reason:
                continue
            if not catalog.can_rebuild(entry.table, block.intent.encoded_with):
                await self.owner.apply(Condemned(entry.table, reason))

    async def _check(self, table: int, block: Block, now: float, *, poll: bool) -> None:
        catalog = self.owner.context.catalog
        known = catalog.by_id(table)
        version = known.version if known is not None else 0
        seen = self._seen.setdefault(table, _Seen(block.intent.begin, now, version, now + FIRST_RETRY))
        if poll:
            decision = await self.owner.context.ports.markers.block_decision(self.owner.stream, catalog.name(table))
            if decision is not None and await self._carry_out(table, block, decision, now - seen.since):
                return
        if known is not None and not known.unavailable and (version > seen.version or now >= seen.at):
            self._seen[table] = seen.tried(version, now)
            self.blocks.replay_now(table)
            log.info("block.released", stream=self.owner.report.label, table=known.history.name, reason=block.reason)
            await self.owner.apply(Released(table))

    async def _carry_out(self, table: int, block: Block, decision: Decision, waited: float) -> bool:
        """True when the decision was about this block and is carried out, or cannot be yet."""
        name, intent = self.owner.context.catalog.name(table), block.intent
        asked = _ACTION.fullmatch(decision.action)
        if asked is None or (int(asked[2]), int(asked[3])) != (intent.begin, intent.end):
            return False
        deed = asked[1]
        again = deed in ("absent", "recut")
        if again:
            refusal = _refusal(await self._presence(table, block, waited, proof=deed == "recut"))
            if refusal is not None:
                if refusal:
                    self.owner.report.alarm(Alarm("RecutRefused", refusal, table))
                    await self.owner.context.ports.markers.consume_block_decision(self.owner.stream, name, decision)
                return True
        begin, end = intent.begin, intent.end
        event = Recut(table, begin, end, await self._dead(table, block)) if again else Stored(table, begin, end)
        text = f"block [{begin}, {end}]: {deed}, as decided by {decision.by}"
        self.owner.report.alarm(Alarm("BlockDecided", text, table))
        await self.owner.apply(event)
        await self.owner.flush()
        if self._recorded(table, begin):
            await self.owner.context.ports.markers.consume_block_decision(self.owner.stream, name, decision)
        return True

    async def _dead(self, table: int, block: Block) -> int:
        """How many messages of the table, from the block's begin to the first that is pending, are not in the block:
        they were dead-lettered when it was cut, and will be counted again. Raises Retryable while the log does not
        answer."""
        state, name = self.owner.state, self.owner.context.catalog.name(table)
        if state is None:
            return 0
        cursor, begin = state.table(table).cursor, block.intent.begin
        stop = state.position if cursor is None else cursor
        group = self.owner.context.ports.group
        found = await group.survey(self.owner.stream, begin, stop, {name: (begin, stop - 1)})
        return max(0, found[name].inside - block.intent.messages) if name in found else 0

    async def _presence(self, table: int, block: Block, waited: float, *, proof: bool) -> Provenance:
        """Absent when the block may be cut again: no insert of it can still run and, where proof is asked for,
        provenance finds no row of it."""
        storing = self.owner.context.storing
        if waited <= storing.lifetime:
            return CannotTell("an earlier owner's insert may still be running", after=POLL)
        if not proof:
            return Absent()  # as the person who decided has stated
        state = self.owner.state
        to_store = self.blocks.to_store(table, block.intent, state.topic_id, fresh=False) if state is not None else None
        if to_store is None:
            unknown = self.owner.context.catalog.why_not(table)
            return CannotTell("the server has no such table: nothing can be proved", after=None if unknown else POLL)
        return await storing.provenance(to_store)

    def _recorded(self, table: int, begin: int) -> bool:
        """The broker does not hold the block any more."""
        recorded = self.owner.state.recorded if self.owner.state is not None else None
        return recorded is not None and not any(
            e.table == table and e.in_flight is not None and e.in_flight.begin == begin for e in recorded.tables
        )


def _refusal(found: Provenance) -> str | None:
    """Why a block must not be cut again: None when it may be, empty when that is not known yet."""
    match found:
        case Absent():
            return None
        case Whole():
            return "all of its messages are stored"
        case Partial(messages=messages, rows=rows):
            return f"{rows} rows of {messages} of its messages are stored"
        case CannotTell(why=why, after=None):
            return why
        case CannotTell():
            return ""
        case _:
            assert_never(found)
