"""One rollout under load on real servers, from their start to the audit: two columns, producers of both revisions, and
perhaps a SIGKILL at one of its steps."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from blockhouse.config.endpoints import ClickHouse, KafkaCluster, ZooKeeper
from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.audit import AuditReport, AuditSpec
from blockhouse_aggregator.audit import run as run_audit
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.produce import LoadSpec
from blockhouse_operator.api.conditions import Reason
from blockhouse_operator.api.parts import Rollout
from e2e.chaos.supervisor import Supervisor
from e2e.demo.load import Load
from e2e.demo.scenario import CLICKS
from e2e.pipeline import Pipeline, PipelineSpec, VerifierProcess, verifier_of
from e2e.rollouts.lags import TableLags
from e2e.rollouts.load import MixedPool
from e2e.rollouts.plan import Kill
from e2e.rollouts.process import Death, Moment, RolloutOperator
from e2e.rollouts.site import Wanted, site_of
from e2e.stack import Stack, StackSpec
from e2e.stack.clickhouse import ClickHouseServer
from e2e.stack.process import wait_until
from e2e.stack.server import Server, StackError

CHANGED, OTHERS = "default.clicks", ("default.orders", "default.payments")
TABLES = (CHANGED, *OTHERS)
SHARES = {CHANGED: 0.5, "default.orders": 0.3, "default.payments": 0.2}
COLUMNS = {
    CHANGED: ", ".join(f"{name} {type_}" for name, type_ in CLICKS),
    "default.orders": "id UInt64, at DateTime, total Decimal(18, 2)",
    "default.payments": "id UInt64, method String, amount Float64",
}
ADDED = "seven UInt32 DEFAULT 7, loud String DEFAULT upper(page)"
SETTINGS: Mapping[str, Any] = {
    "quorum": {"timeout": "10s"},
    "kafka": {"commitTimeout": "5s"},
    "handoverAfter": "5s",
    "shutdownBudget": "15s",
}
ROWS = 10
LONGEST_LOAD = 3600.0
STEADY_SECONDS = 5.0
FIRST_MESSAGES, WARM_SECONDS = 400, 10.0
WARM_TIMEOUT, KILL_TIMEOUT, ROLLOUT_TIMEOUT, DRAIN_TIMEOUT, AUDIT_WAIT = 300.0, 60.0, 420.0, 420.0, 120.0
POLL = 0.02


@dataclass(frozen=True, slots=True)
class Story:
    """One run. `rate` is in messages a second to both Kafka clusters together, ten rows each; `after` is how long, in
    seconds, producers of both revisions go on when the rollout is over."""

    seed: int = 1
    replicas: int = 4
    rate: float = 2000.0
    after: float = 10.0
    rollout: Rollout = field(default_factory=Rollout)
    kill: Kill | None = None
    barrier: bool = True
    """Without it the table is altered behind everybody's back, at the moment at which an aggregator dies with a block
    of it in flight: what a rollout spares us."""


@dataclass(frozen=True, slots=True)
class Told:
    """What came of a run, before it is judged. Times are Unix seconds."""

    story: Story
    report: AuditReport
    rows: int
    begun: float
    over: float
    moments: Sequence[Moment]
    lags: TableLags
    killed: str
    verified: Mapping[str, Any]
    statuses: Mapping[str, Mapping[str, Any]]
    revisions: Sequence[int]
    wrong_defaults: Mapping[str, int]
    of_new_revision: Mapping[str, int]
    """Rows of the changed table that producers of the new revision sent, by replica."""
    crashes: Sequence[str]


Tell = Callable[[str], None]


def ddl(table: str, added: str = "") -> str:
    """The declaration of one of TABLES."""
    more = f", {added}" if added else ""
    return f"CREATE TABLE {table} ({COLUMNS[table]}{more}) ENGINE = MergeTree ORDER BY id"


class Stage:
    """Everything that runs. A context manager: nothing outlives it."""

    def __init__(self, story: Story, folder: Path) -> None:
        self.story = story
        self.stack = Stack(folder / "stack", StackSpec(replicas=story.replicas, clickhouse_zk_timeout_ms=6_000))
        settings = {**SETTINGS, "faults": {"enabled": not story.barrier}}
        spec = PipelineSpec(name="rollout", partitions=story.replicas, overrides=settings)
        self.pipeline = Pipeline(self.stack, folder, spec)
        self.operator = RolloutOperator(folder / "operator", site_of(self.pipeline))
        self.verifier: VerifierProcess = verifier_of(self.pipeline)
        self.servers: dict[str, Server] = {"operator": self.operator, "verifier": self.verifier}
        self.servers |= {f"aggregator-{name}": process for name, process in self.pipeline.aggregators.items()}
        self.servers |= {f"clickhouse-{server.replica}": server for server in self.stack.clickhouse.values()}
        self._exits = ExitStack()

    def __enter__(self) -> Stage:
        with ExitStack() as exits:
            exits.enter_context(self.stack)
            exits.enter_context(self.pipeline)
            exits.callback(self.operator.kill)
            exits.callback(self.verifier.kill)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._exits.close()

    def start(self) -> None:
        """Aggregators, verifier, and an operator that has created the tables."""
        self.pipeline.create_topic()
        self.verifier.start(wait=False)
        self.pipeline.start()
        self.want(1)
        self.operator.start()
        _wait("every table created", lambda: self.settled(1), WARM_TIMEOUT)

    def want(self, generation: int, added: str = "") -> None:
        """Declare the tables, the changed one with these columns more."""
        tables = {table: ddl(table, added if table == CHANGED else "") for table in TABLES}
        self.operator.want(Wanted(generation=generation, tables=tables, rollout=self.story.rollout))

    def settled(self, generation: int) -> bool:
        """The operator has found every table as this generation declares it."""
        status = self.operator.record().status
        states = {table.state for table in status.tables}
        return status.observed_generation == generation and states == {Reason.AS_SPECIFIED.value}

    def clusters(self) -> list[KafkaCluster]:
        return [KafkaCluster(name=k.name, bootstrap_servers=k.bootstrap) for k in self.stack.kafka.values()]


def perform(story: Story, folder: Path, tell: Tell) -> Told:
    """Run it in `folder`. Raises BlockhouseError when it could not be run to its end."""
    tell(f"seed {story.seed}: starting servers and {story.replicas} aggregators")
    with Stage(story, folder) as stage, ExitStack() as exits:
        stage.start()
        root = stage.pipeline.root
        session = exits.enter_context(Session(ZooKeeper(servers=stage.stack.zookeeper.connect, root=root)))
        schemas = SchemaStore(session)
        pools = {table: MixedPool(_history(schemas, table), 2 * story.seed) for table in TABLES}
        spec = LoadSpec(SHARES, int(LONGEST_LOAD * story.rate), ROWS, rate=story.rate, seed=story.seed)
        manifest = folder / "manifest.jsonl"
        load = exits.enter_context(Load(spec, stage.clusters(), stage.pipeline.spec.topic, pools, manifest))
        lags = exits.enter_context(TableLags(stage.pipeline, TABLES))
        tell(f"producing {story.rate:g} messages a second")
        load.send_first(FIRST_MESSAGES)
        _wait("the first rows stored", stage.pipeline.quiet, WARM_TIMEOUT)
        load.start()
        load.wait(WARM_SECONDS)
        _wait("a steady load", lambda: lags.latest() < STEADY_SECONDS, WARM_TIMEOUT)
        begun = time.time()
        killed = _change(story, stage, schemas, pools[CHANGED], tell)
        over = time.time()
        tell(f"rolled out after {over - begun:.1f} s; both revisions go on for {story.after:g} s")
        load.wait(load.clock() + story.after)
        unknown = load.end(DRAIN_TIMEOUT)
        tell(f"produced {load.rows:,} rows ({unknown} messages never acknowledged); waiting until all are stored")
        stage.pipeline.wait_for("every stream quiet", stage.pipeline.quiet, DRAIN_TIMEOUT)
        tell("auditing every replica")
        return _told(story, stage, load.rows, begun, over, lags, killed, manifest, schemas, pools[CHANGED])


def _change(story: Story, stage: Stage, schemas: SchemaStore, pool: MixedPool, tell: Tell) -> str:
    """Declare the new columns and wait until they are rolled out; returns whom a SIGKILL has hit."""
    before = len(stage.operator.files.moments())
    hit: list[str] = []
    with Supervisor(stage.servers, tell) as supervisor, ExitStack() as exits:
        if story.kill is not None:
            exits.enter_context(_killing(story.kill, stage, supervisor, before, hit, tell))
        exits.enter_context(_mixing(schemas, pool, tell))
        if not story.barrier:
            hit.append(_alter_behind(story, stage, supervisor, tell))
        tell("declaring two more columns")
        stage.want(2, ADDED)
        _wait("the rollout", lambda: stage.settled(2), ROLLOUT_TIMEOUT)
        if story.kill is not None:
            _wait(f"the SIGKILL of {story.kill}", lambda: bool(hit), KILL_TIMEOUT)
        _wait("everybody up again", lambda: all(s.answers() for s in stage.servers.values()), WARM_TIMEOUT)
        _wait("the rollout still at its end", lambda: stage.settled(2), ROLLOUT_TIMEOUT)
    return "".join(hit)


def _alter_behind(story: Story, stage: Stage, supervisor: Supervisor, tell: Tell) -> str:
    """Let an aggregator die between insert and acknowledgement, and alter the table before anybody takes over."""
    names = list(stage.pipeline.aggregators)
    victim = stage.pipeline.aggregators[names[story.seed % len(names)]]
    with supervisor.holding_down([victim.name]):
        victim.arm_fault("after-insert", action="kill-aggregator", table=CHANGED)
        _wait(f"the death of {victim.name}", lambda: not victim.alive, KILL_TIMEOUT)
        added = ", ".join(f"ADD COLUMN {column}" for column in ADDED.split(", "))
        stage.stack.clickhouse[1, 1].execute(f"ALTER TABLE {CHANGED} {added}")
    tell(f"{victim.name} died between an insert and its acknowledgement; the table is altered")
    return f"{victim.name} after an insert, then ALTER"


@contextmanager
def _killing(
    kill: Kill, stage: Stage, supervisor: Supervisor, before: int, hit: list[str], tell: Tell
) -> Iterator[None]:
    """Carries the kill out in a thread of its own once its moment has come."""
    over = threading.Event()
    server = stage.servers[kill.victim]
    if kill.victim == "operator":
        stage.operator.die_at(Death(request=kill.request, number=kill.number, moment=kill.moment))

    def come() -> bool:
        if kill.victim == "operator":
            return not server.alive
        moments = stage.operator.files.moments()[before:]
        return sum((m.request, m.moment) == (kill.request, kill.moment) for m in moments) >= kill.number

    def run() -> None:
        with supervisor.holding_down([kill.victim]):
            while not come():
                if over.wait(POLL):
                    return
            over.wait(kill.delay)
            server.kill()
            hit.append(str(kill))
            tell(f"killed: {kill}")
            over.wait(kill.down)

    with _thread(run, over):
        yield


@contextmanager
def _mixing(schemas: SchemaStore, pool: MixedPool, tell: Tell) -> Iterator[None]:
    """From the moment at which the new revision is recorded, half of the producers use it."""
    over = threading.Event()
    known = len(_history(schemas, pool.table).revisions)

    def run() -> None:
        while not over.wait(POLL * 10):
            history = schemas.get(pool.table)
            if history is not None and len(history.revisions) > known:
                pool.add(history)
                tell("half of the messages are of the new revision from now on")
                return

    with _thread(run, over):
        yield


@contextmanager
def _thread(run: Callable[[], None], over: threading.Event) -> Iterator[None]:
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _told(
    story: Story,
    stage: Stage,
    rows: int,
    begun: float,
    over: float,
    lags: TableLags,
    killed: str,
    manifest: Path,
    schemas: SchemaStore,
    pool: MixedPool,
) -> Told:
    topic = stage.pipeline.spec.topic
    spec = AuditSpec(
        clusters=tuple(stage.clusters()),
        topic=topic,
        replicas=tuple(ClickHouse(host=s.host, port=s.port) for s in stage.stack.clickhouse.values()),
        dead_letter_topic=f"{topic}.dead-letters",
        manifest=manifest,
        wait=AUDIT_WAIT,
    )
    counts = {server.replica: _counts(server, pool) for server in stage.stack.clickhouse.values()}
    aggregators = stage.pipeline.aggregators
    return Told(
        story,
        run_audit(spec),
        rows,
        begun,
        over,
        [moment for moment in stage.operator.files.moments() if moment.at >= begun],
        lags,
        killed,
        stage.verifier.settled(AUDIT_WAIT),
        {replica: aggregator.status() for replica, aggregator in aggregators.items()},
        [len(_history(schemas, table).revisions) for table in TABLES],
        {replica: wrong for replica, (wrong, _) in counts.items()},
        {replica: new for replica, (_, new) in counts.items()},
        [
            f"{replica}: {line.get('error')}"
            for replica, aggregator in aggregators.items()
            for line in aggregator.logged("aggregator.failed")
        ],
    )


def _counts(server: ClickHouseServer, pool: MixedPool) -> tuple[int, int]:
    """Rows of producers of the old revision that have not the defaults, and rows of producers of the new one."""
    of = "bitAnd(bitShiftRight(id, 31), 1023) = "
    old, *newer = pool.seeds
    new = newer[0] if newer else -1
    sql = f"SELECT countIf({of}{old} AND (seven != 7 OR loud != upper(page))), countIf({of}{new}) FROM {CHANGED}"
    ((wrong, newer_rows),) = server.execute(sql)
    return int(wrong), int(newer_rows)


def _history(schemas: SchemaStore, table: str) -> TableHistory:
    history = schemas.get(table)
    if history is None or history.current is None:
        raise StackError(f"no aggregator has recorded the schema of {table}")
    return history


def _wait(what: str, condition: Callable[[], bool], timeout: float) -> None:
    if not wait_until(condition, timeout=timeout, interval=0.2):
        raise StackError(f"{what}: not within {timeout:g} s")
