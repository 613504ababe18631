"""The demonstration from beginning to end: servers up, rows flowing, harm done, everything audited, all gone again."""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from rich.console import Console

from blockhouse.config.endpoints import ZooKeeper
from blockhouse_aggregator.audit import AuditReport
from blockhouse_aggregator.audit import run as run_audit
from blockhouse_aggregator.clickhouse.quorum import QuorumProbe
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.produce import MessagePool
from e2e.demo.ending import show_audit, show_faults, show_next, with_names
from e2e.demo.faults import Faults, Frozen, Killed
from e2e.demo.progress import Figures, Reporter, progress_of
from e2e.demo.scenario import FIRST_MESSAGES, Scenario
from e2e.demo.verdict import judge
from e2e.kit.checks import Check, show_checks
from e2e.kit.load import Load
from e2e.kit.tables import TABLES, Table
from e2e.kit.watch import Watcher
from e2e.kit.workspace import STACK
from e2e.pipeline import Pipeline, PipelineSpec, VerifierProcess, verifier_of
from e2e.pipeline.schemas import recorded_history
from e2e.stack import Stack, StackSpec
from e2e.stack.process import wait_until
from e2e.stack.server import StackError
from e2e.stack.tables import create_replicated_table

WINDOW = {"replicated_deduplication_window": 10_000}
"""The server's default of 100 blocks is half a minute here; docs/clickhouse.md explains how to size it."""
MANIFEST = "manifest.jsonl"
SCHEMA_TIMEOUT = 30.0
READY_TIMEOUT = 120.0
WARM_TIMEOUT = 120.0
DRAIN_TIMEOUT = 120.0
AUDIT_WAIT = 20.0


@dataclass(slots=True)
class Stage:
    """Everything that runs."""

    pipeline: Pipeline
    verifier: VerifierProcess
    schemas: SchemaStore
    watcher: Watcher
    load: Load
    faults: Faults
    reporter: Reporter


def perform(scenario: Scenario, folder: Path, console: Console, *, keep: bool) -> tuple[Check, ...]:
    """Run the scenario in an empty folder and print everything. Returns the checks; StackError when a server fails."""
    reporter = Reporter(console)
    with ExitStack() as exits:
        stage = _set_up(scenario, folder, reporter, exits, keep=keep)
        with progress_of(reporter, Figures(stage.watcher, stage.load)):
            killed, frozen = _play(scenario, stage)
            _drain(stage)
        reporter.log("comparing Kafka itself with every replica")
        report = _audit(stage, folder)
        verified = stage.verifier.settled()
        for name in stage.pipeline.aggregators:
            stage.watcher.look(name)
        tally = stage.watcher.tally
        names = {history.id: history.name for history in stage.schemas.all()}
    show_audit(console, report)
    show_faults(console, [killed], [frozen], tally)
    checks = judge(
        report,
        replicas=scenario.replicas,
        tables=[t.full_name for t in TABLES],
        rows=stage.load.rows,
        killed=[killed],
        frozen=[frozen],
        replays=tally.total("replays"),
        recognised=tally.total("deduplicated") + tally.total("provenance_decisions"),
        streams=2 * scenario.partitions,
        verified=verified,
    )
    show_checks(console, checks)
    show_next(console, folder, keep, [killed], names)
    reporter.log("all servers and aggregators are stopped")
    return checks


def _set_up(scenario: Scenario, folder: Path, reporter: Reporter, exits: ExitStack, *, keep: bool) -> Stage:
    reporter.log(f"seed {scenario.seed}: starting ZooKeeper, 2 Kafka clusters, {scenario.replicas} ClickHouse replicas")
    stack = Stack(folder / STACK, StackSpec(kafka_clusters=2, replicas=scenario.replicas), keep=keep)
    exits.callback(stack.close)
    stack.start()
    for table in TABLES:
        if not table.late:
            _create(stack, table)
    pipeline = exits.enter_context(Pipeline(stack, folder, PipelineSpec(partitions=scenario.partitions)))
    pipeline.create_topic()
    session = Session(ZooKeeper(servers=stack.zookeeper.connect, root=f"/blockhouse/{pipeline.spec.name}"))
    exits.callback(session.close)
    session.connect()
    schemas = SchemaStore(session)
    for table in TABLES:
        schemas.ensure_id(table.full_name)
        if table.late:  # as a rollout does it: the schema is known before the table is there
            schemas.append(table.full_name, 0, table.revision)
    verifier = verifier_of(pipeline)
    exits.callback(verifier.kill)
    verifier.start(wait=False)
    reporter.log(f"starting a verifier and {scenario.replicas} aggregators, each of these a process with its own Spark")
    pipeline.start()
    pools = {
        t.full_name: MessagePool(recorded_history(schemas, t.full_name, SCHEMA_TIMEOUT), scenario.seed) for t in TABLES
    }
    watcher = exits.enter_context(Watcher(pipeline))
    manifest = folder / MANIFEST
    load = exits.enter_context(Load(scenario.load, pipeline.clusters, pipeline.spec.topic, pools, manifest))
    faults = Faults(pipeline, watcher, QuorumProbe(session.client), load.clock)
    return Stage(pipeline, verifier, schemas, watcher, load, faults, reporter)


def _create(stack: Stack, table: Table) -> None:
    create_replicated_table(stack, table.name, table.sql_columns, order_by=table.order_by, settings=WINDOW)


def _play(scenario: Scenario, stage: Stage) -> tuple[Killed, Frozen]:
    """Everything that happens while rows flow."""
    load, faults, log = stage.load, stage.faults, stage.reporter.log
    load.send_first(FIRST_MESSAGES)
    if not wait_until(lambda: _warm(scenario, stage), timeout=WARM_TIMEOUT, interval=0.5):
        raise StackError(f"the first rows were not stored within {WARM_TIMEOUT:g} s: see the aggregators' logs")
    load.start()
    log(f"producing {scenario.rows:,} rows to both Kafka clusters, {scenario.load.rate:,.0f} messages a second")
    load.wait(scenario.kill.at)
    killed = faults.kill(scenario.kill.candidates)
    log(f"killed aggregator {killed.replica} while a stored block of {killed.block.table} was unacknowledged", "red")
    _wait_for_takeover(killed, stage)
    log(f"its streams are taken over; starting aggregator {killed.replica} again", "green")
    stage.pipeline.aggregators[killed.replica].start(wait=False)
    load.wait(scenario.create_late_at)
    for table in TABLES:
        if table.late:
            _create(stage.pipeline.stack, table)
            log(f"created table {table.full_name}, whose messages have been waiting")
    load.wait(scenario.freeze.at)
    _wait_for_two(stage)
    order = sorted(scenario.freeze.candidates, key=lambda name: name == killed.replica)
    log("freezing an aggregator for longer than its session lasts", "cyan")
    frozen = faults.freeze(order, scenario.freeze_seconds)
    log(f"thawed aggregator {frozen.replica} after {frozen.seconds:.1f} s; others have its streams", "green")
    return killed, frozen


def _warm(scenario: Scenario, stage: Stage) -> bool:
    """Every stream is owned, and its task has read to the end once."""
    streams = [unread for seen in stage.watcher.latest for unread in seen.unread.values()]
    return len(streams) == 2 * scenario.partitions and not any(streams) and stage.watcher.tally.total("rows") > 0


def _wait_for_takeover(killed: Killed, stage: Stage) -> None:
    stream = killed.block.stream
    if not wait_until(lambda: stream in stage.faults.owned_by_others(killed.replica), timeout=READY_TIMEOUT):
        raise StackError(f"no aggregator took over {stream} within {READY_TIMEOUT:g} s of its owner's death")


def _wait_for_two(stage: Stage) -> None:
    """Until one may be frozen and another one is there to take over."""

    def enough() -> bool:
        return sum(seen.condition == "ready" and bool(seen.streams) for seen in stage.watcher.latest) >= 2

    if not wait_until(enough, timeout=READY_TIMEOUT):
        raise StackError(f"the killed aggregator did not work again within {READY_TIMEOUT:g} s: see its log")


def _drain(stage: Stage) -> None:
    """Until all is produced and stored."""
    load = stage.load
    if unknown := load.finish(DRAIN_TIMEOUT):
        raise StackError(f"{unknown:,} messages were not acknowledged by the brokers: see their logs")
    stage.reporter.log(f"produced {load.rows:,} rows in {load.messages:,} messages; waiting until all are stored")
    stage.pipeline.wait_for("every stream quiet", stage.pipeline.quiet, DRAIN_TIMEOUT)


def _audit(stage: Stage, folder: Path) -> AuditReport:
    pipeline, stack = stage.pipeline, stage.pipeline.stack
    servers = {f"{s.host}:{s.port}": s for s in stack.clickhouse.values()}
    spec = pipeline.audit_spec(folder / MANIFEST, AUDIT_WAIT)
    return with_names(run_audit(spec), {address: server.replica for address, server in servers.items()})
