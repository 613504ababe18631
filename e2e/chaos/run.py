"""One chaos run from its first server to its verdict."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockhouse.config.endpoints import ClickHouse, KafkaCluster, ZooKeeper
from blockhouse.schema.model import TableHistory
from blockhouse_aggregator.audit import AuditReport, AuditSpec
from blockhouse_aggregator.audit import run as run_audit
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.produce import LoadSpec, MessagePool
from e2e.chaos.catalogue import RECOVERY_TIMEOUT
from e2e.chaos.figures import STEADY_SECONDS, Memory, Recovery, memory, recoveries, steady_since
from e2e.chaos.injecting import Injected, Injector
from e2e.chaos.observing import Observer
from e2e.chaos.scenario import Scenario
from e2e.chaos.supervisor import Supervisor
from e2e.chaos.verdict import judge, rows_in_kafka
from e2e.chaos.world import LOADED, World
from e2e.demo.load import Load
from e2e.demo.verdict import Check
from e2e.pipeline import Pipeline
from e2e.stack import Stack
from e2e.stack.process import wait_until
from e2e.stack.server import StackError

FIRST_MESSAGES = 100
WARM_TIMEOUT = SCHEMA_TIMEOUT = 180.0
FAULT_TIMEOUT = DRAIN_TIMEOUT = 300.0
AUDIT_WAIT = VERIFIER_TIMEOUT = 120.0

Tell = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found."""

    scenario: Scenario
    checks: tuple[Check, ...]
    faults: tuple[tuple[Injected, Recovery], ...]
    memory: tuple[Memory, ...]
    lag_peak: int
    rows: int
    replays: int
    deduplicated: int
    by_provenance: int
    seconds: float
    timeline: tuple[str, ...]

    @property
    def passed(self) -> bool:
        return all(check.holds for check in self.checks)


class Timeline:
    """Lines with the seconds since production began; negative before. Thread-safe."""

    def __init__(self, tell: Tell) -> None:
        self.lines: list[str] = []
        self._tell = tell
        self._began = time.monotonic()
        self._guard = threading.Lock()

    def restart(self) -> None:
        self._began = time.monotonic()

    def clock(self) -> float:
        return time.monotonic() - self._began

    def say(self, text: str) -> None:
        with self._guard:
            line = f"{self.clock():7.1f} s  {text}"
            self.lines.append(line)
            self._tell(line)


def perform(scenario: Scenario, folder: Path, tell: Tell, *, isolated: bool) -> Outcome:
    """Run the scenario in `folder`. Raises BlockhouseError when the run itself could not be done; whether the system
    has passed is in the outcome."""
    began = time.monotonic()
    timeline = Timeline(tell)
    with ExitStack() as exits:
        timeline.say(f"seed {scenario.seed}: starting servers and {scenario.replicas} aggregators")
        world = exits.enter_context(World(scenario, folder, isolated=isolated))
        session = exits.enter_context(
            Session(ZooKeeper(servers=world.stack.zookeeper.connect, root=world.pipeline.root))
        )
        schemas = SchemaStore(session)
        for table in LOADED:
            schemas.ensure_id(table.full_name)
        world.verifier.start(wait=False)
        world.pipeline.start()
        load = exits.enter_context(_load(scenario, world, schemas, folder / "manifest.jsonl"))
        observer = exits.enter_context(Observer(world, lambda: load.messages, timeline.clock))
        _warm_up(load, observer)
        supervisor = exits.enter_context(Supervisor(world.servers, timeline.say))
        injector = Injector(world, supervisor, timeline.clock, timeline.say)
        exits.callback(injector.abort)
        timeline.restart()
        observer.forget()
        if scenario.in_turn:
            _play_in_turn(scenario, load, injector, observer, timeline)
        else:
            _play(scenario, load, injector, timeline)
        injector.join(FAULT_TIMEOUT)
        unknown = load.finish(DRAIN_TIMEOUT)
        not_acknowledged = f" ({unknown:,} messages never acknowledged by the brokers)" if unknown else ""
        timeline.say(f"produced {load.rows:,} rows{not_acknowledged}; waiting until everything is stored")
        _quiesce(world)
        observer.look()
        timeline.say("quiet; auditing every replica")
        report = _audit(world, folder / "manifest.jsonl")
        verified = world.verifier.settled(VERIFIER_TIMEOUT)
        seconds = time.monotonic() - began
        anomalies = world.verifier.anomalies()
        return _outcome(scenario, world, load, observer, injector, report, verified, anomalies, timeline, seconds)


def _load(scenario: Scenario, world: World, schemas: SchemaStore, manifest: Path) -> Load:
    histories = {table.full_name: _history(schemas, table.full_name) for table in LOADED}
    spec = LoadSpec(
        {table.full_name: table.share for table in LOADED},
        scenario.messages + FIRST_MESSAGES,
        rate=scenario.rate,
        seed=scenario.seed,
    )
    pools = {name: MessagePool(history, scenario.seed) for name, history in histories.items()}
    return Load(spec, _clusters(world.stack), world.pipeline.spec.topic, pools, manifest)


def _history(schemas: SchemaStore, table: str) -> TableHistory:
    """The table's history, once an aggregator has recorded what it found in ClickHouse."""
    found: list[TableHistory] = []

    def recorded() -> bool:
        history = schemas.get(table)
        found[:] = [history] if history is not None and history.current is not None else []
        return bool(found)

    if not wait_until(recorded, timeout=SCHEMA_TIMEOUT, interval=0.2):
        raise StackError(f"no aggregator recorded the schema of {table} within {SCHEMA_TIMEOUT:g} s")
    return found[0]


def _warm_up(load: Load, observer: Observer) -> None:
    load.send_first(FIRST_MESSAGES)
    if not wait_until(lambda: observer.stored >= FIRST_MESSAGES, timeout=WARM_TIMEOUT, interval=0.5):
        raise StackError(f"the first rows were not stored within {WARM_TIMEOUT:g} s: see the aggregators' logs")


def _play(scenario: Scenario, load: Load, injector: Injector, timeline: Timeline) -> None:
    """Start each fault at its time, while rows flow."""
    load.start()
    timeline.say(f"producing {scenario.messages:,} messages, {scenario.rate:g} a second")
    for fault in sorted(scenario.faults, key=lambda each: each.at):
        load.wait(fault.at)
        injector.start(fault)
    load.wait(scenario.seconds)


def _play_in_turn(scenario: Scenario, load: Load, injector: Injector, observer: Observer, timeline: Timeline) -> None:
    """Each fault alone, with time to recover, while rows flow."""
    load.start()
    timeline.say(f"producing {scenario.rate:g} messages a second, for {len(scenario.faults)} faults in turn")

    def recovered(since: float) -> bool:
        samples = [sample for sample in observer.samples if sample.at >= since]
        steady = steady_since(samples, scenario.rate)
        return steady is not None and samples[-1].at - steady >= STEADY_SECONDS

    for number, fault in enumerate(scenario.faults, start=1):
        load.wait(load.clock() + fault.at)
        injector.start(fault)
        injector.join(FAULT_TIMEOUT)
        over = timeline.clock()
        if not wait_until(lambda over=over: recovered(over), timeout=RECOVERY_TIMEOUT, interval=0.5):  # type: ignore[misc]
            timeline.say(f"not recovered from within {RECOVERY_TIMEOUT:g} s: {fault}")
        timeline.say(f"{number} of {len(scenario.faults)} faults done")
    load.stop()


def _quiesce(world: World) -> None:
    """Until every server answers and every row is stored; nobody helps."""
    down = [name for name, server in world.servers.items() if not wait_until(server.answers, timeout=DRAIN_TIMEOUT)]
    if down:
        raise StackError(f"{', '.join(down)} did not come back within {DRAIN_TIMEOUT:g} s")
    pipeline: Pipeline = world.pipeline
    pipeline.wait_for("every stream quiet", pipeline.quiet, DRAIN_TIMEOUT)


def _audit(world: World, manifest: Path) -> AuditReport:
    topic = world.pipeline.spec.topic
    spec = AuditSpec(
        clusters=tuple(_clusters(world.stack)),
        topic=topic,
        replicas=tuple(ClickHouse(host=s.host, port=s.port) for s in world.stack.clickhouse.values()),
        dead_letter_topic=f"{topic}.dead-letters",
        manifest=manifest,
        wait=AUDIT_WAIT,
    )
    return run_audit(spec)


def _clusters(stack: Stack) -> list[KafkaCluster]:
    return [KafkaCluster(name=k.name, bootstrap_servers=k.bootstrap) for k in stack.kafka.values()]


def _outcome(
    scenario: Scenario,
    world: World,
    load: Load,
    observer: Observer,
    injector: Injector,
    report: AuditReport,
    verified: Mapping[str, Any],
    anomalies: Sequence[Mapping[str, Any]],
    timeline: Timeline,
    seconds: float,
) -> Outcome:
    tally, samples = observer.tally, list(observer.samples)
    rows = max(load.rows, rows_in_kafka(report))
    checks = judge(
        report,
        replicas=scenario.replicas,
        tables=[table.full_name for table in LOADED],
        rows=rows,
        replays=tally.total("replays") if scenario.replays else None,
        surplus=tally.total("surplus_rows"),
        faults=injector.done,
        statuses={replica: aggregator.status() for replica, aggregator in world.aggregators.items()},
        verified=verified,
        anomalies=anomalies,
        crashes=[
            f"{replica}: {line.get('error')}"
            for replica, aggregator in world.aggregators.items()
            for line in aggregator.logged("aggregator.failed")
        ],
    )
    return Outcome(
        scenario,
        checks,
        faults=tuple(zip(injector.done, recoveries(injector.done, samples, scenario.rate), strict=True)),
        memory=memory(observer.memory),
        lag_peak=max((sample.lag for sample in samples), default=0),
        rows=rows,
        replays=tally.total("replays"),
        deduplicated=tally.total("deduplicated"),
        by_provenance=tally.total("provenance_decisions"),
        seconds=seconds,
        timeline=tuple(timeline.lines),
    )
