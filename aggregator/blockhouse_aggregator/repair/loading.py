"""The parts of an aggregator that store blocks, joined to load what a survey found missing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from typing import cast

from blockhouse.config.pipeline import AggregatorConfig
from blockhouse.errors import Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.assembly import storing_beside
from blockhouse_aggregator.blocks import scan
from blockhouse_aggregator.blocks.collecting import DeadLetter
from blockhouse_aggregator.blocks.inserting import Inserter
from blockhouse_aggregator.clickhouse.expressions import DefaultValues
from blockhouse_aggregator.clickhouse.running import check_no_insert_runs
from blockhouse_aggregator.clickhouse.tables import ServerTable
from blockhouse_aggregator.coordination.locks import TableLock
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.coordination.znodes import Check, VersionConflict
from blockhouse_aggregator.isolation.careful import careful_decoders
from blockhouse_aggregator.kafka.fetch import StreamReader
from blockhouse_aggregator.repair.filling import Filling, GrantedInsert, Progress, Refused
from blockhouse_aggregator.repair.standing import Standing, standing
from blockhouse_aggregator.repair.survey import Surveyed
from blockhouse_aggregator.runtime import ports

GROUP = "blockhouse-repair"


class ShardWorld:
    """`filling.World` of one stream."""

    def __init__(self, settings: AggregatorConfig, session: Session, stream: StreamId) -> None:
        self._settings = settings
        self._session = session
        self._stream = stream

    def check_no_insert_runs(self, table: ServerTable) -> None:
        check_no_insert_runs(self._settings.clickhouse, self._session.znodes, table)

    def standing(self) -> Standing:
        return standing(self._settings, self._session, self._stream)

    def check_lock(self, lock: ports.Lock) -> None:
        try:
            self._session.znodes.together(*(Check(node, 0) for node in cast(TableLock, lock).nodes))
        except VersionConflict as conflict:
            raise Retryable("the table's lock was lost before the insert", after=0.5) from conflict


async def load(
    settings: AggregatorConfig, session: Session, found: Surveyed, now: Standing, progress: Progress
) -> Sequence[Refused]:
    """Load what is missing of the stream that stands as `now`; returns what could not be. Raises Retryable or Permanent
    of the servers: run again, it continues with what is missing then."""
    with ExitStack() as closing:
        storing = closing.enter_context(storing_beside(settings, session, "blockhouse repair"))
        scanner = closing.enter_context(_scanner(settings, now))
        task = GrantedInsert(
            ShardWorld(settings, session, now.stream),
            now.topic_id,
            lambda report: Inserter(now.stream, settings.clickhouse, settings.quorum, report),
        )
        closing.callback(cast(Inserter, task.inserter).close)
        filling = Filling(now, storing, scanner, task, settings.blocks.max_rows, progress)
        await filling.fill(found)
        return filling.refused


@contextmanager
def _scanner(settings: AggregatorConfig, now: Standing) -> Iterator[scan.Scanner]:
    with ExitStack() as closing:
        make = closing.enter_context(careful_decoders(lambda: None))
        reader = closing.enter_context(StreamReader(now.cluster, now.stream, group=GROUP, prefetch_bytes=4 << 20))
        defaults = DefaultValues(settings.clickhouse)
        closing.callback(defaults.close)
        yield scan.Scanner(
            now.stream,
            cast(scan.Reader, reader),
            blocks=settings.blocks,
            database=settings.clickhouse.database,
            default_format=settings.default_format,
            bury=_no_letters,
            evaluate=defaults,
            isolate=lambda: nullcontext(make),
        )


def _no_letters(letters: Sequence[DeadLetter]) -> None:
    """A replay sets no message aside: what cannot be decoded is missing as before."""
    assert not letters, "a replay makes no dead letters"
