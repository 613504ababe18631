"""An aggregator behind its real admin API: two streams, one of which has stopped, and servers that remember."""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from blockhouse.config.pipeline import Admin
from blockhouse.contract.notices import StartWait
from blockhouse.errors import Blocked, Retryable
from blockhouse.metadata.model import InFlight, Window
from blockhouse.schema.ddl import TOPIC_TYPE, Declaration, DeclaredColumn
from blockhouse.schema.difference import Difference
from blockhouse.schema.history import first_revision
from blockhouse.schema.model import TableHistory
from blockhouse.streams import StreamId
from blockhouse_aggregator.admin.server import AdminServer
from blockhouse_aggregator.coordination.drains import Drain
from blockhouse_aggregator.coordination.markers import Decision, StreamMarker
from blockhouse_aggregator.coordination.pauses import Pause
from blockhouse_aggregator.coordination.restarts import RestartDemand
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.protocol.events import Alarm
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState, TableState, metadata_of
from blockhouse_aggregator.protocol.takeover import Stop
from blockhouse_aggregator.runtime.figures import Figures
from blockhouse_aggregator.runtime.ports import StreamFacts
from blockhouse_aggregator.runtime.process.acceptances import Acceptances
from blockhouse_aggregator.runtime.process.draining import Draining
from blockhouse_aggregator.runtime.process.membership import Suspension
from blockhouse_aggregator.runtime.stream.letters_written import StreamLetters
from blockhouse_aggregator.runtime.stream.ownership_history import OwnershipHistory
from blockhouse_aggregator.runtime.stream.reporting import Counters
from blockhouse_aggregator.runtime.tables.catalog import Known
from blockhouse_aggregator.runtime.tables.hazards import HazardWatch
from blockhouse_aggregator.runtime.tables.loadable import check_columns
from blockhouse_aggregator.runtime.tables.restarts import RestartRequests
from blockhouse_aggregator.runtime.tables.schema_rollouts import SchemaRollouts
from tests.unit.runtime.configs import CONFIG
from tests.unit.runtime.test_hazards import SAFE

NOW = 1_764_057_600_000
CONSUMES, STOPPED = StreamId("a", "events", 0), StreamId("a", "events", 1)
HISTORY = TableHistory(id=7, name=SAFE.full_name, revisions=(first_revision(SAFE.columns),))


class FakePorts:
    """ZooKeeper, Kafka and the server, as far as the admin API asks them."""

    def __init__(self) -> None:
        self.drain: Drain | None = None
        self.decisions: dict[str, Decision] = {}

    async def get(self) -> Drain | None:
        return self.drain

    async def remove(self) -> bool:
        gone, self.drain = self.drain is not None, None
        return gone

    async def put(self, by: str, why: str) -> Drain:
        self.drain = self.drain or Drain(by=by, why=why, since_ms=NOW)
        return self.drain

    async def facts(self, stream: StreamId, epoch: int) -> StreamFacts:
        return StreamFacts(90, "", 10, 100, "id", compacted=False)

    async def marker(self, stream: StreamId) -> StreamMarker:
        return StreamMarker(topic_id="id", started_ms=0, replica="r1", seq=3, position=90)

    async def accept(self, stream: StreamId, decision: Decision) -> None:
        self.decisions[str(stream)] = decision

    async def identity(self) -> str:
        return "history"


class Pauses:
    def __init__(self) -> None:
        self.paused: dict[str, Pause] = {}

    async def all(self) -> Mapping[str, Pause]:
        return self.paused

    async def put(self, table: str, rollout: str) -> Pause:
        pause = self.paused.setdefault(table, Pause(rollout=rollout, since_ms=NOW))
        if pause.rollout != rollout:
            raise Blocked(f"paused by {pause.rollout}", reason="HeldByOther")
        return pause

    async def remove(self, table: str, rollout: str) -> bool:
        return self.paused.pop(table, None) is not None


class Catalog:
    """One table, loaded."""

    def __init__(self, pauses: Pauses) -> None:
        self._pauses = pauses
        self.tables = (Known(HISTORY, SAFE),)

    def name(self, table_id: int) -> str:
        return HISTORY.name if table_id == HISTORY.id else f"#{table_id}"

    def known(self, table: str) -> Known | None:
        return self.tables[0] if table == HISTORY.name else None

    def pause_of(self, table: str) -> Pause | None:
        return self._pauses.paused.get(table)

    def found_as_declared(self, *_: object) -> None: ...

    def as_declared(self, _: Known) -> str:
        return ""

    async def refresh_pauses(self) -> None: ...

    async def id_of(self, table: str) -> int:
        return HISTORY.id


class Server:
    async def compared(self, declared: Declaration) -> Difference | None:
        return Difference((), ()) if declared.name == HISTORY.name else None

    async def lacking_types(self, declared: Declaration, difference: Difference | None) -> tuple[str, ...]:
        return ()

    async def topic_type(self) -> str:
        return TOPIC_TYPE

    async def create(
        self, declared: Declaration, path: str, name: str, settings: Sequence[tuple[str, int]]
    ) -> None: ...
    async def add_columns(self, declared: Declaration, added: Sequence[DeclaredColumn]) -> None: ...


class Demands:
    async def latest(self) -> RestartDemand:
        return RestartDemand()

    async def add(self, rollout: str) -> RestartDemand:
        return RestartDemand(number=1, rollout=rollout, since_ms=NOW)


def owner(stream: StreamId, *, state: StreamState | None = None, stop: Stop | None = None) -> Any:
    alarms = [Alarm("TopicIdMissing", "an alarm")] if state is not None else []
    letters = StreamLetters(str(stream), lambda: NOW)
    report = SimpleNamespace(counters=Counters(), alarms=alarms, troubles={}, letters=letters)
    return SimpleNamespace(stream=stream, epoch=2, state=state, stop=stop, report=report, log_end=100)


class StandIn:
    """`admin.server.Administered`."""

    def __init__(self) -> None:
        self.config, self.figures, self.faults = CONFIG, Figures(), Faults()
        self.ready, self.starting, self.unfit = True, False, ""
        self.hazards = HazardWatch(CONFIG, self.figures)
        self.suspension = Suspension(None)
        self.cluster_errors: dict[str, str] = {}
        self.lag = None
        self.waits: StartWait | None = None
        self.partitions: dict[str, int] = {"a": 2}
        self.history = OwnershipHistory(lambda: NOW)
        self.fakes, pauses = FakePorts(), Pauses()
        self.catalog: Any = Catalog(pauses)
        block = Block(InFlight(12, 19, 8, 1, 0, 5), Stage.REPLAY, fresh=False)
        state = StreamState("r1", 2, "id", 0, 7, 30, Window(), 0, (TableState(HISTORY.id, block),))
        stop = Stop("OffsetsReset", "the offset was set by a tool")
        self.owners: dict[StreamId, Any] = {
            CONSUMES: owner(CONSUMES, state=state), STOPPED: owner(STOPPED, stop=stop)
        }  # fmt: skip
        window = Window(reference=10, sealed=8, holes=12)
        found = metadata_of(replace(state, replica="r2", seq=state.seq - 1, window=window), NOW)
        self.history.began(str(CONSUMES), 2, state, self.catalog.name, found=found)
        self.restarting = RestartRequests(Demands(), lambda why: None)
        ports: Any = SimpleNamespace(group=self.fakes, markers=self.fakes, schemas=self.fakes)
        self._draining = Draining(self.fakes)
        self._acceptances = Acceptances(ports, self.owners, lambda: NOW)
        self._rollouts = SchemaRollouts(
            CONFIG, pauses, self.catalog, Server(), check_columns, lambda table: False, lambda: 2, self.restarting
        )

    @property
    def why_out(self) -> str:
        return self._draining.problem

    @property
    def why_unfit(self) -> str:
        return self.unfit

    def rollouts(self) -> SchemaRollouts:
        self._check_started()
        return self._rollouts

    def draining(self) -> Draining:
        self._check_started()
        return self._draining

    def acceptances(self) -> Acceptances:
        self._check_started()
        return self._acceptances

    def _check_started(self) -> None:
        if self.starting:
            raise Retryable("the aggregator is still starting")


@asynccontextmanager
async def served(aggregator: StandIn, token_file: Path | None = None) -> AsyncIterator[str]:
    """The URL of its admin API, on a port of its own."""
    aggregator.figures = Figures()  # a registry takes a server once
    admin: dict[str, Any] = {"port": 1}
    if token_file is not None:
        admin["token"] = {"file": str(token_file)}
    server = AdminServer(Admin.model_validate(admin).model_copy(update={"port": 0}), aggregator)
    await server.start()
    try:
        yield f"http://127.0.0.1:{server.port}"
    finally:
        await server.stop()
