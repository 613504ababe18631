"""One chaos run from its first server to its verdict."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from blockhouse.config.endpoints import ZooKeeper
from blockhouse.contract.verifier import AnomalyReport, Verdict
from blockhouse_aggregator.audit import ValuesSpec
from blockhouse_aggregator.audit import run as run_audit
from blockhouse_aggregator.coordination.schema_store import SchemaStore
from blockhouse_aggregator.coordination.session import Session
from e2e.chaos.alerting import Alerting, AlertReport, alerting
from e2e.chaos.catalogue import CALM_SECONDS, RECOVERY_TIMEOUT
from e2e.chaos.evidence import keep
from e2e.chaos.figures import Memory, Recovery, memory, recoveries, steady_since
from e2e.chaos.injecting import Injected, Injector
from e2e.chaos.isolation import isolated
from e2e.chaos.observing import Observer
from e2e.chaos.pictures import panels_drawn
from e2e.chaos.production import FIRST_MESSAGES, Production, manifest, production_of
from e2e.chaos.scenario import Scenario
from e2e.chaos.verdict import Audited, judge, judge_alerts, rows_in_kafka
from e2e.chaos.world import LOADED, World
from e2e.kit.checks import Check
from e2e.kit.plot import Span
from e2e.kit.supervisor import Supervisor
from e2e.stack.process import wait_until
from e2e.stack.server import StackError

WARM_TIMEOUT = 180.0
FAULT_TIMEOUT = DRAIN_TIMEOUT = 300.0
AUDIT_WAIT = VERIFIER_TIMEOUT = RESOLVE_TIMEOUT = 120.0
VALUES_SAMPLE = 2_000
"""Messages of each table whose values are compared."""

Log = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What a run found."""

    scenario: Scenario
    checks: tuple[Check, ...]
    faults: tuple[tuple[Injected, Recovery], ...]
    alerts: AlertReport | None
    """None: no Prometheus ran beside it."""
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

    def __init__(self, log: Log) -> None:
        self.lines: list[str] = []
        self._log = log
        self._began = time.monotonic()
        self._guard = threading.Lock()

    def restart(self) -> None:
        self._began = time.monotonic()

    def clock(self) -> float:
        return time.monotonic() - self._began

    def log(self, text: str) -> None:
        with self._guard:
            line = f"{self.clock():7.1f} s  {text}"
            self.lines.append(line)
            self._log(line)


def perform(
    scenario: Scenario,
    folder: Path,
    log: Log,
    *,
    isolated: bool,
    alerts: bool = False,
    pictures: Path | None = None,
) -> Outcome:
    """Run the scenario in `folder`; with `alerts`, or for a scenario that names some, beside a Prometheus, and so with
    `pictures`: panels of dashboards are drawn there. Raises BlockhouseError when the run itself could not be done;
    whether the system has passed is in the outcome."""
    began = time.monotonic()
    timeline = Timeline(log)
    with ExitStack() as exits:
        aggregators = f"{scenario.shards} x {scenario.replicas} aggregators"
        timeline.log(f"seed {scenario.seed}: starting servers and {aggregators}")
        world = exits.enter_context(World(scenario, folder, isolated=isolated))
        session = exits.enter_context(
            Session(ZooKeeper(servers=world.stack.zookeeper.connect, root=world.pipelines[0].root))
        )
        schemas = SchemaStore(session)
        for table in LOADED:
            schemas.ensure_id(table.full_name)
        world.verifier.start(wait=False)
        for pipeline in world.pipelines:
            pipeline.start(wait=False)
        for pipeline in world.pipelines:
            for aggregator in pipeline.aggregators.values():
                aggregator.wait_ready()
        load = exits.enter_context(production_of(scenario, world, schemas))
        observer = exits.enter_context(Observer(world, lambda: load.messages, timeline.clock))
        watch = None
        if alerts or scenario.alerts or pictures is not None:
            watch = exits.enter_context(alerting(world, folder / "prometheus", timeline.clock, scenario.alerts))
        _warm_up(load, observer)
        supervisor = exits.enter_context(Supervisor(world.servers, timeline.log))
        injector = Injector(world, supervisor, timeline.clock, timeline.log)
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
        timeline.log(f"produced {sum(load.rows):,} rows{not_acknowledged}; waiting until everything is stored")
        _quiesce(world)
        alarmed = _alarmed(watch, timeline)
        if watch is not None and pictures is not None:
            _draw(watch, pictures, timeline, injector.done)
        observer.look()
        timeline.log("quiet; auditing every replica")
        audits = _audit(world, load)
        if not all(audited.report.exact for audited in audits):
            keep(world.stack, audits, session.client, folder / "evidence")
            timeline.log(f"not exact: what the servers knew is in {folder / 'evidence'}")
        verified = world.verifier.settled(VERIFIER_TIMEOUT)
        seconds = time.monotonic() - began
        anomalies = world.verifier.anomalies()
        return _outcome(scenario, world, observer, injector, alarmed, audits, verified, anomalies, timeline, seconds)


def _warm_up(load: Production, observer: Observer) -> None:
    load.send_first()
    if not wait_until(lambda: min(observer.stored) >= FIRST_MESSAGES, timeout=WARM_TIMEOUT, interval=0.5):
        raise StackError(f"the first rows were not stored within {WARM_TIMEOUT:g} s: see the aggregators' logs")


def _play(scenario: Scenario, load: Production, injector: Injector, timeline: Timeline) -> None:
    """Start each fault at its time, while rows flow."""
    load.start()
    timeline.log(f"producing {scenario.messages:,} messages for each shard, {scenario.rate:g} a second")
    for fault in sorted(scenario.faults, key=lambda each: each.at):
        load.wait(fault.at)
        injector.start(fault)
    load.wait(scenario.seconds)


def _play_in_turn(
    scenario: Scenario, load: Production, injector: Injector, observer: Observer, timeline: Timeline
) -> None:
    """Each fault alone, with time to recover, while rows flow."""
    load.start()
    timeline.log(f"producing {scenario.rate:g} messages a second, for {len(scenario.faults)} faults in turn")

    def recovered(since: float) -> bool:
        samples = [sample for sample in observer.samples if sample.at >= since]
        steady = steady_since(samples, scenario.rate)
        return steady is not None and samples[-1].at - steady >= CALM_SECONDS

    for number, fault in enumerate(scenario.faults, start=1):
        load.wait(load.clock() + fault.at)
        injector.start(fault)
        injector.join(FAULT_TIMEOUT)
        over = timeline.clock()
        if not wait_until(lambda over=over: recovered(over), timeout=RECOVERY_TIMEOUT, interval=0.5):  # type: ignore[misc]
            timeline.log(f"not recovered from within {RECOVERY_TIMEOUT:g} s: {fault}")
        timeline.log(f"{number} of {len(scenario.faults)} faults done")
    load.stop()


def _quiesce(world: World) -> None:
    """Until every server answers and every row is stored, without any help."""
    down = [name for name, server in world.servers.items() if not wait_until(server.answers, timeout=DRAIN_TIMEOUT)]
    if down:
        raise StackError(f"{', '.join(down)} did not come back within {DRAIN_TIMEOUT:g} s")
    for pipeline in world.pipelines:
        pipeline.wait_for("every stream quiet", pipeline.quiet, DRAIN_TIMEOUT)


def _alarmed(watch: Alerting | None, timeline: Timeline) -> AlertReport | None:
    """Which alerts have fired, once none does any more or RESOLVE_TIMEOUT has passed."""
    if watch is None:
        return None
    timeline.log("waiting until no alert fires")
    watch.wait_resolved(RESOLVE_TIMEOUT)
    return watch.report()


def _draw(watch: Alerting, folder: Path, timeline: Timeline, faults: Sequence[Injected]) -> None:
    """Writes a file for each panel."""
    folder.mkdir(parents=True, exist_ok=True)
    now = timeline.clock()
    spans = [Span(str(each.fault), each.began, now if each.ended is None else each.ended) for each in faults]
    for name, svg in panels_drawn(watch.measured, now, spans):
        (folder / name).write_text(svg)
    timeline.log(f"panels of the dashboards are drawn in {folder}")


def _audit(world: World, production: Production) -> list[Audited]:
    """Every shard's topic with every one of its replicas: each row, and the values of a sample."""
    with Session(ZooKeeper(servers=world.stack.zookeeper.connect, root=world.pipelines[0].root)) as session:
        histories = {history.name: history for history in SchemaStore(session).all()}
    values = ValuesSpec(histories, VALUES_SAMPLE, world.scenario.seed)
    found = []
    for pipeline, rows in zip(world.pipelines, production.rows, strict=True):
        shard = pipeline.spec.shard
        spec = pipeline.audit_spec(manifest(world.folder, shard), AUDIT_WAIT)
        report = run_audit(replace(spec, values=values))
        found.append(Audited(shard, report, max(rows, rows_in_kafka(report))))
    return found


def _outcome(
    scenario: Scenario,
    world: World,
    observer: Observer,
    injector: Injector,
    alarmed: AlertReport | None,
    audits: Sequence[Audited],
    verified: Verdict,
    anomalies: Sequence[AnomalyReport],
    timeline: Timeline,
    seconds: float,
) -> Outcome:
    tally, samples = observer.tally, list(observer.samples)
    checks = judge(
        audits,
        replicas=scenario.replicas,
        tables=[table.full_name for table in LOADED],
        replays=tally.total("replays") if scenario.replays else None,
        surplus=tally.total("surplus_rows"),
        faults=injector.done,
        statuses={pod: aggregator.status() for pod, aggregator in world.aggregators.items()},
        verified=verified,
        anomalies=anomalies,
        crashes=[
            f"{pod}: {line.get('error')}"
            for pod, aggregator in world.aggregators.items()
            for line in aggregator.logged("aggregator.failed")
        ],
        isolation=isolated(injector.done, samples, scenario.layout, scenario.rate, demanded=scenario.outages),
        alerts=() if alarmed is None else judge_alerts(scenario.alerts, alarmed, injector.done),
    )
    pause = min((fault.at for fault in scenario.faults), default=0.0) if scenario.in_turn else 0.0
    recovered = recoveries(injector.done, samples, scenario.rate, pause)
    return Outcome(
        scenario,
        checks,
        faults=tuple(zip(injector.done, recovered, strict=True)),
        alerts=alarmed,
        memory=memory(observer.memory),
        lag_peak=max((sample.lag for sample in samples), default=0),
        rows=sum(audited.rows for audited in audits),
        replays=tally.total("replays"),
        deduplicated=tally.total("deduplicated"),
        by_provenance=tally.total("provenance_decisions"),
        seconds=seconds,
        timeline=tuple(timeline.lines),
    )
