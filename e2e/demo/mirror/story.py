"""The demonstration of a mirror from beginning to end: clusters up, records flow, processes die, all audited, all gone.

A phase ends when what it is about was seen, and at the latest after `PATIENCE`: what was not seen fails a check then.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from rich.console import Console

from blockhouse.contract.mirror import MirrorStatus
from blockhouse_mirror.audit.compare import PartitionAudit
from blockhouse_mirror.audit.judge import audit
from e2e.demo.mirror.feed import Feed
from e2e.demo.mirror.progress import Figures, Watch, all_held, held_by_task, running
from e2e.demo.mirror.scenario import HOT, PARTITIONS, TASKS, TOPIC, Scenario, settings
from e2e.demo.mirror.verdict import Killed, Observed, judge
from e2e.demo.progress import Reporter, progress_of
from e2e.kit.checks import Check, show_checks
from e2e.kit.mirror import MirrorProcess, ends
from e2e.stack.kafka import KafkaClusterServers, kafka_cluster
from e2e.stack.process import wait_until
from e2e.stack.server import StackError

NAME = "mirror"
SERVERS = "servers"
READY_TIMEOUT = 90.0
PATIENCE = 50.0
AUDIT_EVERY = 6
"""Partitions between two lines of the audit's progress."""


@dataclass(slots=True)
class Stage:
    """Everything that runs."""

    kafka: dict[str, KafkaClusterServers]
    mirror: MirrorProcess
    feed: Feed
    watch: Watch
    figures: Figures
    reporter: Reporter

    def phase(self, text: str, style: str = "") -> None:
        self.figures.phase = text.split(":")[0]
        self.reporter.log(text, style)

    def waits_for(self, condition: Callable[[MirrorStatus | None], object], seconds: float = PATIENCE) -> bool:
        """Whether the mirror's status fulfils it in time."""
        return wait_until(lambda: bool(condition(self.watch.look())), timeout=seconds, interval=0.25)


def perform(scenario: Scenario, folder: Path, console: Console) -> tuple[Check, ...]:
    """Run the scenario in an empty folder and print everything. Returns the checks; StackError when a server fails."""
    reporter = Reporter(console)
    with ExitStack() as exits:
        stage = _set_up(scenario, folder, reporter, exits)
        with progress_of(reporter, stage.figures):
            seen = _play(scenario, stage)
            produced = _drain(stage)
        audits = _audit(stage)
        reporter.log("stopping both clusters")
    checks = judge(seen, audits, PARTITIONS, produced)
    show_checks(console, checks)
    log = stage.mirror.log
    reporter.log(f"everything is stopped; what the mirror did: {log}, its configuration: {log.with_suffix('.yaml')}")
    return checks


def _set_up(scenario: Scenario, folder: Path, reporter: Reporter, exits: ExitStack) -> Stage:
    reporter.log(f"SEED={scenario.seed}: starting two Kafka clusters")
    start = partial(_cluster, folder / SERVERS, exits)
    with ThreadPoolExecutor(2) as pool:
        kafka = dict(zip("ab", pool.map(start, "ab"), strict=True))
    kafka["a"].create_topic(TOPIC, partitions=PARTITIONS)
    feed = exits.enter_context(Feed(kafka["a"].bootstrap, scenario.calm, scenario.seed))
    mirror = MirrorProcess(kafka, folder, NAME, TOPIC, **settings())
    exits.callback(mirror.kill)
    watch = exits.enter_context(Watch(mirror))
    stage = Stage(kafka, mirror, feed, watch, Figures(watch, feed), reporter)
    reporter.log("starting the mirror: a driver with a Spark of its own, whose Python workers are the tasks")
    mirror.start()
    return stage


def _cluster(folder: Path, exits: ExitStack, name: str) -> KafkaClusterServers:
    return exits.enter_context(kafka_cluster(name, folder, {1: {}}))


def _play(scenario: Scenario, stage: Stage) -> Observed:
    """Everything that happens while records flow."""
    stage.phase(f"calm: {sum(scenario.calm) / 1e6:.1f} MB/s, the same for each of {PARTITIONS} partitions")
    if not stage.waits_for(lambda status: all_held(status) and _measured(status), READY_TIMEOUT):
        raise StackError(f"the mirror has not begun within {READY_TIMEOUT:g} s: see {stage.mirror.log}")
    calm = running(stage.watch.latest)
    stage.feed.rates = scenario.rushes[0]
    stage.phase(f"rush: {sum(scenario.rushes[0]) / 1e6:.1f} MB/s, most of it to {HOT} partitions", "yellow")
    stage.waits_for(lambda status: running(status) == TASKS and _complete(status))
    grown = running(stage.watch.latest)
    stage.reporter.log(f"tasks that run: {grown} instead of {calm}", "green")
    time.sleep(scenario.kill_after)  # the moment is the seed's
    worker = _kill_worker(scenario, stage)
    time.sleep(scenario.change_after)
    before = _owners(stage.watch.look())
    stage.feed.rates = scenario.rushes[1]
    stage.phase(f"other hot partitions: as much load, most of it to {HOT} others", "yellow")
    if worker is not None:
        worker = _mirrored_again(stage, worker, PATIENCE)
    stage.waits_for(lambda status: _differing(before, _owners(status)))
    moved = _differing(before, _owners(stage.watch.latest))
    stage.reporter.log(f"{moved} partitions have another task now", "green")
    driver = _kill_driver(stage, calm)
    stage.feed.rates = scenario.calm
    stage.phase("calm again: the tasks that are not needed any more end")
    stage.waits_for(lambda status: running(status) <= calm and _complete(status))
    shrunk = running(stage.watch.latest)
    stage.reporter.log(f"tasks that run: {shrunk} instead of {grown}", "green")
    return Observed(calm, grown, moved, shrunk, worker.killed if worker is not None else None, driver.killed)


@dataclass(slots=True)
class _Death:
    at: float
    killed: Killed


def _kill_worker(scenario: Scenario, stage: Stage) -> _Death | None:
    held, workers = held_by_task(stage.watch.look()), stage.mirror.workers()
    task = scenario.task_to_kill({name: count for name, count in held.items() if name in workers})
    if task is None:
        return None
    workers[task].kill()
    stage.reporter.log(f"killed the worker of {task}, which had {held[task]} partitions", "red")
    return _Death(time.monotonic(), Killed(f"that of {task}", held[task], None))


def _kill_driver(stage: Stage, calm: int) -> _Death:
    held = sum(held_by_task(stage.watch.look()).values())
    stage.mirror.kill_driver()
    death = _Death(time.monotonic(), Killed("the driver's tasks", held, None))
    stage.reporter.log(f"killed the driver, whose tasks had {held} partitions; starting another one", "red")
    stage.mirror.start()
    death = _mirrored_again(stage, death, READY_TIMEOUT)
    stage.waits_for(lambda status: running(status) > calm and _complete(status))
    return death


def _mirrored_again(stage: Stage, death: _Death, seconds: float) -> _Death:
    if stage.waits_for(all_held, seconds):
        took = time.monotonic() - death.at
        stage.reporter.log(f"every partition is mirrored again, {took:.1f} s later", "green")
        return _Death(death.at, Killed(death.killed.what, death.killed.held, took))
    return death


def _drain(stage: Stage) -> int:
    """End the feed and, when all of it is mirrored, the mirror; how many records the source has."""
    stage.phase("the end: waiting until everything is mirrored")
    produced = stage.feed.stop()
    targets = ends(stage.kafka["a"], TOPIC, PARTITIONS)
    if not wait_until(lambda: stage.mirror.caught_up(targets), timeout=PATIENCE, interval=0.25):
        stage.reporter.log("not everything was mirrored in time", "red")
    stage.reporter.log("stopping the mirror: tasks release what they have, positions are written")
    code = stage.mirror.terminate()
    if code:
        raise StackError(f"the mirror ended with exit code {code}: see {stage.mirror.log}")
    return produced


def _audit(stage: Stage) -> list[PartitionAudit]:
    stage.reporter.log("comparing both clusters, record by record")
    found: list[PartitionAudit] = []
    for each in audit(stage.mirror.config):
        found.append(each)
        if len(found) % AUDIT_EVERY == 0:
            records = sum(one.compared for one in found)
            stage.reporter.log(f"{len(found)} of {PARTITIONS} partitions, {records:,} records compared")
    return found


def _measured(status: MirrorStatus | None) -> bool:
    return status is not None and status.load_age_seconds is not None


def _complete(status: MirrorStatus | None) -> bool:
    """All tasks run and have all that is theirs."""
    return status is not None and running(status) == len(status.tasks) and all_held(status)


def _owners(status: MirrorStatus | None) -> dict[int, str]:
    return {each.partition: each.task for each in status.partitions} if status is not None else {}


def _differing(before: dict[int, str], after: dict[int, str]) -> int:
    return sum(after.get(partition, task) != task for partition, task in before.items())
