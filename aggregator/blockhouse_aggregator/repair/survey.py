"""Looks for the messages of a range, in the log and in the tables, as the local replica has them now."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field

from tenacity import retry, retry_if_exception_type, stop_after_delay, wait_exponential

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import Blocked, Permanent, Retryable
from blockhouse.schema.history import extend
from blockhouse.schema.model import TableHistory
from blockhouse.streams import incarnation
from blockhouse_aggregator.audit.compare import Ints, Produced
from blockhouse_aggregator.audit.produced import NO_TABLE, DeadLetterLog, read_window
from blockhouse_aggregator.clickhouse.client import Replica
from blockhouse_aggregator.clickhouse.presence import Origin
from blockhouse_aggregator.clickhouse.provenance import stored_rows_of_any_revision
from blockhouse_aggregator.clickhouse.removals import ROWS_REMOVED, why_rows_may_be_removed
from blockhouse_aggregator.clickhouse.tables import ServerTable, describe
from blockhouse_aggregator.coordination.claims import TableClaims
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.repair.judging import Judged, TableJudged, Verdict, joined, judge, not_known
from blockhouse_aggregator.repair.standing import Standing
from blockhouse_aggregator.runtime.tables.loadable import check_loadable

PORTION = 100_000
"""Offsets that are compared at a time: what is in memory of the messages of one."""
PATIENCE = 60.0
"""Seconds until a replica has to have fetched what it lacks."""
VIEWS = "MaterializedViews"

Progress = Callable[[int], None]
"""Called with how many offsets were compared."""

_patiently = retry(
    retry=retry_if_exception_type(Retryable),
    wait=wait_exponential(0.2, max=2),
    stop=stop_after_delay(PATIENCE),
    reraise=True,
)


@dataclass(frozen=True, slots=True)
class Table:
    """A table of the range as it can be loaded now. `why` is the reason for which what it lacks is not loaded without
    a person's word, and a text; empty reasons when there is none."""

    history: TableHistory
    server: ServerTable
    origin: Origin
    why: tuple[str, str] = ("", "")


@dataclass(frozen=True, slots=True)
class Surveyed:
    """The range [begin, end) of a stream. `headless` counts messages that name no table. `tables` are those that can be
    loaded."""

    begin: int
    end: int
    judged: tuple[TableJudged, ...]
    tables: dict[str, Table]
    headless: int


@dataclass(slots=True)
class Survey:
    """Of one stream. `despite` are the reasons (ROWS_REMOVED, VIEWS) that a person has decided to ignore; `only` one
    table is compared, if it is given. Errors are those of the servers."""

    settings: AggregatorConfig
    session: Session
    standing: Standing
    replica: Replica
    only: str = ""
    despite: frozenset[str] = frozenset()
    _known: dict[str, Table | tuple[str, str]] = field(default_factory=dict)

    def look(self, begin: int, end: int, progress: Progress = lambda _: None) -> Surveyed:
        """Compare log and tables in [begin, end). Raises Retryable when a server does not answer in time."""
        portions: dict[str, list[Judged]] = defaultdict(list)
        why: dict[str, tuple[str, str]] = {}
        headless = 0
        dead = self._dead()
        for first in range(begin, end, PORTION):
            last = min(first + PORTION, end)
            for name, produced in self._produced(first, last).items():
                if name == NO_TABLE:
                    headless += len(produced.offsets)
                elif self.only in ("", name):
                    judged, reason = self._judge(name, produced, dead, (first, last))
                    portions[name].append(judged)
                    why |= {name: reason} if reason[0] else {}
            progress(last - begin)
        found = tuple(self._table(name, joined(parts), why.get(name)) for name, parts in sorted(portions.items()))
        usable = {name: known for name, known in self._known.items() if isinstance(known, Table)}
        return Surveyed(begin, end, found, usable, headless)

    @_patiently
    def _produced(self, begin: int, end: int) -> dict[str, Produced]:
        standing, settings = self.standing, self.settings
        database, default = settings.clickhouse.database, settings.default_format
        return read_window(standing.cluster, standing.stream, begin, end, database, default)

    def _dead(self) -> Ints:
        stream = self.standing.stream
        letters = DeadLetterLog(self.standing.cluster, self.settings.kafka.dead_letters, stream.topic)
        try:
            letters.read()
            return letters.offsets(stream.partition)
        finally:
            letters.close()

    def _judge(
        self, name: str, produced: Produced, dead: Ints, bounds: tuple[int, int]
    ) -> tuple[Judged, tuple[str, str]]:
        """The table's messages, and why they cannot be judged, if they cannot."""
        if name not in self._known:
            self._known[name] = self._examined(name)
        known = self._known[name]
        if not isinstance(known, Table):
            return not_known(produced), known
        try:
            stored = _patiently(stored_rows_of_any_revision)(
                self.replica, known.server, known.origin, bounds[0], bounds[1] - 1
            )
        except Blocked as error:
            return not_known(produced), (error.reason, str(error))
        return judge(produced, stored, dead, self.standing.done_below(known.history.id)), ("", "")

    def _table(self, name: str, messages: Judged, why: tuple[str, str] | None) -> TableJudged:
        reasons = {} if why is None else {Verdict.UNKNOWN: why}
        known = self._known[name]
        if isinstance(known, Table) and known.why[0] and known.why[0] not in self.despite:
            messages = messages.doubted(Verdict.REMOVED)
            reasons[Verdict.REMOVED] = known.why
        return TableJudged(name, messages, reasons)

    def _examined(self, name: str) -> Table | tuple[str, str]:
        """The table, or why nothing of it can be judged."""
        history = SchemaStore(self.session).get(name)
        server = describe(self.replica, *name.split(".", 1))
        if history is None or server is None:
            return "UnknownTable", "the server has no such table" if server is None else "no aggregator has met it yet"
        try:
            if extend(history, server.columns) is not history:
                return "SchemaChange", "its columns were changed and are not recorded yet: wait for an aggregator"
            check_loadable(self.settings)(history, server)
        except (Blocked, Permanent) as error:
            return error.reason, str(error)
        return Table(history, server, self._origin(history, server), self._doubt(server))

    def _origin(self, history: TableHistory, server: ServerTable) -> Origin:
        stream = self.standing.stream
        topic = incarnation(stream.topic, self.standing.topic_id)
        sole = not self.standing.former
        if server.zookeeper_path is not None:
            claims = TableClaims(self.session, "blockhouse repair").all(server.full_name, server.zookeeper_path)
            sole = sole and claims.sole((stream.cluster, topic), server.provenance)
        named = history.current is not None and history.current.names_topic
        return Origin(stream.cluster, stream.partition, topic if named else "", sole)

    def _doubt(self, server: ServerTable) -> tuple[str, str]:
        if gone := why_rows_may_be_removed(self.replica, server):
            return (
                ROWS_REMOVED,
                f"{gone}: what is not there may be one of them; --resurrect loads it again",
            )
        if server.materialized_views:
            views = ", ".join(server.materialized_views)
            return VIEWS, f"{views} would get the rows again; --despite-views loads them all the same"
        return "", ""
