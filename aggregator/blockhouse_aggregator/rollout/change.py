"""Make a table of one shard what a declaration states: create it where it is missing, add columns behind a pause.

A replicated ALTER reaches every replica at once, and a block that is sent once before and once after it may be stored
twice. So the whole shard holds the table while it runs: no block of it is in flight anywhere. docs/schema-changes.md
has the steps; every one may be repeated, so that a change that was interrupted is completed by running it again.
"""

from __future__ import annotations

import asyncio
import hashlib
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

from blockhouse.contract.aggregator import StatusPage
from blockhouse.contract.rollouts import DifferenceAnswer
from blockhouse.errors import Blocked, Permanent, Retryable
from blockhouse_aggregator.rollout.shard import DDL_SECONDS, Aggregators
from blockhouse_aggregator.rollout.waiting import Waiting

POLL = 0.5


@dataclass(frozen=True, slots=True)
class Plan:
    """What a change has to do, by address: where the table is missing, which columns are, what forbids it, and the SQL
    by which it would be done (an older aggregator does not state it)."""

    missing: Sequence[str]
    lacking: Mapping[str, Sequence[str]]
    refused: Mapping[str, Sequence[str]]
    statements: Mapping[str, str] = field(default_factory=dict)

    @property
    def nothing(self) -> bool:
        return not self.missing and not self.lacking and not self.refused


def plan(differences: Mapping[str, DifferenceAnswer]) -> Plan:
    """From what each aggregator answers."""
    return Plan(
        missing=[address for address, found in differences.items() if not found.exists and not found.refused],
        lacking={a: found.added for a, found in differences.items() if found.exists and found.added},
        refused={a: found.refused for a, found in differences.items() if found.refused},
        statements={a: found.statement for a, found in differences.items() if found.statement},
    )


def name_of(table: str, ddl: str) -> str:
    """The rollout's name: the same for the same change, so that one that was interrupted may be completed."""
    return "schema-apply-" + hashlib.sha256(f"{table}\0{ddl}".encode()).hexdigest()[:12]


class Change:
    """One change of one table.

    `streams` are all of the shard, as cluster/topic/partition; `report` gets a line a step; `timeout` bounds each wait,
    in seconds.
    """

    def __init__(
        self,
        aggregators: Aggregators,
        streams: Collection[str],
        table: str,
        ddl: str,
        report: Callable[[str], None],
        timeout: float,
    ) -> None:
        self._aggregators = aggregators
        self._streams = streams
        self._table = table
        self._ddl = ddl
        self._rollout = name_of(table, ddl)
        self._report = report
        self._timeout = timeout
        self._unanswered = False
        """An ALTER was sent and its answer has not come: it may happen at any later moment."""

    async def carry_out(self, found: Plan) -> None:
        """Do it. Raises Retryable when a wait was in vain, Blocked for what stands in the way: running it again
        continues."""
        if found.lacking:
            await self._add_columns(next(iter(found.lacking)))
        elif await self._left_held():
            await self._release()
        for address in found.missing:
            self._report(f"creating {self._table} at {address}")
            await self._apply(address)
        # Also what is there already: its columns are recorded, so that producers know them before the first message.
        await self._apply(self._aggregators.addresses[0])
        await self._until("every aggregator loads the newest revision", self._loaded)

    async def _add_columns(self, address: str) -> None:
        try:
            # Inside: a pause of which no answer came may be recorded.
            self._report(f"holding {self._table} in every stream of the shard")
            await self._aggregators.hold(self._table, self._rollout)
            self._report(f"adding the columns of {self._table} once no block of it is in flight")
            asked: set[str] = set()
            late: str | None = address
            while late is not None:
                while not await self._altered(late):
                    await asyncio.sleep(POLL)
                asked.add(late)
                late = await self._late(asked)
            await self._until(f"every replica has the columns of {self._table}", self._spread)
        finally:
            if self._unanswered:
                self._report(f"{self._table} stays held: its columns may still be added; run it again to continue")
            else:
                await self._release()

    async def _left_held(self) -> bool:
        """An earlier run of the same change was interrupted between its last step and the release."""
        tables = [page.table(self._table) for page in (await self._aggregators.pages()).values()]
        return any(table is not None and table.rollout == self._rollout for table in tables)

    async def _release(self) -> None:
        self._report(f"releasing {self._table}")
        await self._aggregators.release(self._table, self._rollout)

    async def _apply(self, address: str) -> None:
        async with Waiting(f"the replica of {address} has carried the statement out", DDL_SECONDS, self._report):
            await self._aggregators.apply(address, self._table, self._ddl, self._rollout)

    async def _altered(self, address: str) -> bool:
        """False: a stream was taken over in between, with a block of the table. The statement is never cut short."""
        await self._until(f"no block of {self._table} is in flight", self._held)
        self._unanswered = True
        try:
            await self._apply(address)
        except (Blocked, Permanent) as error:
            self._unanswered = False
            if isinstance(error, Permanent):
                raise
            self._report(str(error))
            return False
        self._unanswered = False
        return True

    async def _held(self) -> str:
        pages = await self._aggregators.pages()
        if why := unknown_stream(pages, self._streams):
            return why
        for address, page in pages.items():
            known = page.table(self._table)
            if known is None or known.rollout != self._rollout:
                return f"aggregator {address} does not hold it yet"
            if page.in_flight(self._table):
                return f"aggregator {address} has a block of it in flight"
        return ""

    async def _late(self, asked: Collection[str]) -> str | None:
        """An aggregator that has not been asked and whose replica lacks a column still, although the statement has
        ended: 18.16 may never carry it out at a replica that was frozen, until its own aggregator sees to it."""
        try:
            lacking = plan(await self._aggregators.differences(self._table, self._ddl)).lacking
        except Retryable:
            return None  # who does not answer is waited for, and named
        late = next((address for address in lacking if address not in asked), None)
        if late is not None:
            self._report(f"adding them at {late}, whose replica has not carried that out")
        return late

    async def _spread(self) -> str:
        lacking = plan(await self._aggregators.differences(self._table, self._ddl)).lacking
        return (
            f"the replica of {next(iter(lacking))} lacks {', '.join(next(iter(lacking.values())))}" if lacking else ""
        )

    async def _loaded(self) -> str:
        pages = await self._aggregators.pages()
        return unloaded(self._table, pages)

    async def _until(self, what: str, reason_why_not: Callable[[], Awaitable[str]]) -> None:
        why = ""
        try:
            async with Waiting(what, self._timeout, self._report) as waiting, asyncio.timeout(self._timeout):
                while why := await self._now(reason_why_not):
                    waiting.why = why
                    await asyncio.sleep(POLL)
        except TimeoutError:
            text = f"it was waited for {self._timeout:g} s until {what}: {why}; run it again to continue"
            raise Retryable(text, after=self._timeout) from None

    async def _now(self, reason_why_not: Callable[[], Awaitable[str]]) -> str:
        try:
            return await reason_why_not()
        except Retryable as error:
            return str(error)


def recorded(table: str, pages: Mapping[str, StatusPage]) -> bool:
    """Whether any aggregator knows a revision of the table: a table that was there before is not known by itself."""
    return any(known.revision for page in pages.values() if (known := page.table(table)) is not None)


def unloaded(table: str, pages: Mapping[str, StatusPage]) -> str:
    """Why an aggregator does not load the newest revision of the table that any of them knows; empty when all do."""
    known = {address: page.table(table) for address, page in pages.items()}
    newest = max((found.revision for found in known.values() if found is not None), default=0)
    for address, found in known.items():
        if found is None or found.revision < newest or not newest:
            return f"aggregator {address} does not know revision {newest or 1} yet"
        if found.held:
            return f"aggregator {address} holds it ({found.held}): {found.why}"
    return ""


def unknown_stream(pages: Mapping[str, StatusPage], streams: Collection[str]) -> str:
    """Why it is not known what is in flight of every stream: one moves, is taken over or stands still. Empty: it is."""
    found = {stream.stream: stream for page in pages.values() for stream in page.streams}
    for name in sorted({*streams, *found}):
        if name not in found:
            return f"no aggregator owns {name}"
        if found[name].in_flight is None:
            return f"what is in flight of {name} is not known: it is {found[name].state}"
    return ""


def strangers(pages: Mapping[str, StatusPage], members: Mapping[str, Sequence[str]]) -> Sequence[str]:
    """Members of the consumer groups, by Kafka cluster, that are none of the aggregators given: `replica in cluster a`.

    Raises Blocked when those given are not of one shard.
    """
    shards = {(page.pipeline, page.shard) for page in pages.values()}
    if len(shards) > 1:
        named = ", ".join(f"{pipeline}/{shard}" for pipeline, shard in sorted(shards))
        raise Blocked(f"the aggregators are of more than one shard: {named}; give those of one", reason="ManyShards")
    ours = {page.replica for page in pages.values()}
    return [
        f"{replica} in cluster {cluster}" for cluster, found in members.items() for replica in sorted({*found} - ours)
    ]
