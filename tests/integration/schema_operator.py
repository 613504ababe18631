"""The operator's reconciles of one shard against real aggregators, in the process of the test.

All that outlives an operator is its record, so a new one on the same record has taken over from one that was killed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable
from dataclasses import dataclass, field

from blockhouse_operator.api.rollout import ShardRollout
from blockhouse_operator.api.status import TableStatus
from e2e.pipeline import Pipeline
from e2e.rollouts.reconciles import Reconciles
from e2e.rollouts.record import Record
from e2e.rollouts.site import Desired, site_of

PACE = 0.2
"""Seconds between two reconciles, about the operator's own."""


class Killed(BaseException):
    """A SIGKILL: nothing catches it, nothing is cleaned up."""


@dataclass(frozen=True)
class Death:
    """The operator dies when the `number`-th request of this word has got to `moment`."""

    request: str
    number: int
    moment: str


@dataclass
class SchemaOperator:
    """Operators of one shard, one after the other. `ddl` is what the spec declares, by table."""

    pipeline: Pipeline
    ddl: dict[str, str]
    forgetful: bool = False
    """Every reconcile is that of a new operator."""
    rollout: ShardRollout = field(default_factory=lambda: ShardRollout(strategy="Reload"))
    generation: int = 1
    deaths: set[Death] = field(default_factory=set)
    """Those that have not come yet."""
    requests: list[tuple[str, str]] = field(default_factory=list)
    """Word and moment of every request since `change`."""
    history: list[TableStatus] = field(default_factory=list)
    """Every status that differs from the one before it of the same table."""
    record: Record = field(init=False)

    def __post_init__(self) -> None:
        self.record = Record(report=self._heard)

    def change(self, table: str, ddl: str, *, deaths: Iterable[Death] = ()) -> None:
        """Declare a table again; the operator is to die at each of `deaths`."""
        self.ddl[table] = ddl
        self.generation += 1
        self.deaths = set(deaths)
        self.requests.clear()

    def run(self, expected: Iterable[str] = ("AsSpecified",), *, within: float = 180) -> dict[str, TableStatus]:
        """Reconcile until every table's state is among `expected`; returns the last statuses."""
        return asyncio.run(self._run(tuple(expected), within))

    async def _run(self, expected: tuple[str, ...], within: float) -> dict[str, TableStatus]:
        reconciles, end = Reconciles(site_of(self.pipeline), self.record), time.monotonic() + within
        known: tuple[TableStatus, ...] = ()
        try:
            while time.monotonic() < end:
                try:
                    known = (await reconciles.reconcile(self._desired())).tables
                except Killed:
                    known = ()
                if self.forgetful or not known:
                    await reconciles.close()
                    reconciles = Reconciles(site_of(self.pipeline), self.record)
                self._note(known)
                if known and {table.state for table in known} <= set(expected):
                    return {table.name: table for table in known}
                await asyncio.sleep(PACE)
        finally:
            await reconciles.close()
        raise AssertionError(f"not {expected} after {within} s: {[(t.name, t.state, t.message) for t in known]}")

    def _desired(self) -> Desired:
        return Desired(generation=self.generation, tables=self.ddl, rollout=self.rollout)

    def _heard(self, request: str, moment: str) -> None:
        self.requests.append((request, moment))
        now = Death(request, self.requests.count((request, moment)), moment)
        if now in self.deaths:
            self.deaths.remove(now)
            raise Killed

    def _note(self, tables: tuple[TableStatus, ...]) -> None:
        last = {status.name: status for status in self.history}
        self.history += [table for table in tables if last.get(table.name) != table]
