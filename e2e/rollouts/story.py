"""One rollout under load: two columns, producers of both revisions, and perhaps a SIGKILL at one of its steps; then all
is stored and audited."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

from blockhouse.contract.aggregator import StatusPage
from blockhouse.contract.verifier import Verdict
from blockhouse_aggregator.audit import AuditReport
from blockhouse_aggregator.produce import LoadSpec
from e2e.kit.load import Load
from e2e.kit.supervisor import Supervisor
from e2e.kit.watch import Watcher
from e2e.rollouts.lags import TableLags, measure
from e2e.rollouts.load import MixedPool
from e2e.rollouts.plan import Kill
from e2e.rollouts.process import Death, Moment
from e2e.rollouts.stage import AUDIT_WAIT, CHANGED, START_TIMEOUT, TABLES, Stage, wait
from e2e.stack.clickhouse import ClickHouseServer

SHARES = dict(zip(TABLES, (0.5, 0.3, 0.2), strict=True))
LONGEST_LOAD = 3600.0
FIRST_MESSAGES, WARM_SECONDS, STEADY_SECONDS = 400, 10.0, 5.0
KILL_TIMEOUT, ROLLOUT_TIMEOUT, DRAIN_TIMEOUT = 120.0, 1200.0, 600.0
POLL = 0.02


@dataclass(frozen=True, slots=True)
class Story:
    """One run. `rate` is in messages a second to both Kafka clusters together, each of `rows` rows; `after` is how
    long, in seconds, producers of both revisions continue when the rollout is over."""

    seed: int = 1
    rate: float = 2000.0
    rows: int = 10
    after: float = 10.0
    kill: Kill | None = None
    barrier: bool = True
    """Without it the table is altered without a rollout, at the moment at which an aggregator dies with a block
    of it in flight: what a rollout spares us."""


@dataclass(frozen=True, slots=True)
class Result:
    """What came of a run, before it is judged. Times are Unix seconds; `rows` those of all runs on the stage."""

    story: Story
    report: AuditReport
    rows: int
    changes: int
    begun: float
    over: float
    moments: Sequence[Moment]
    lags: TableLags
    counted: Counter[str]
    """What the aggregators counted meanwhile."""
    killed: str
    verified: Verdict
    statuses: Mapping[str, StatusPage | None]
    revisions: Sequence[int]
    wrong_defaults: Mapping[str, int]
    of_new_revision: Mapping[str, int]
    """Rows of the changed table that producers of the new revision sent, by replica."""
    crashes: Sequence[str]


Log = Callable[[str], None]


def perform(story: Story, stage: Stage, log: Log) -> Result:
    """Add two columns. Raises BlockhouseError when it could not be done to its end."""
    # Two seeds of rows for each of the two revisions, and others for every story on the stage.
    pools = {table: MixedPool(stage.history(table), 2 * story.seed) for table in TABLES}
    spec = LoadSpec(SHARES, int(LONGEST_LOAD * story.rate), story.rows, rate=story.rate, seed=story.seed)
    load = Load(spec, stage.pipeline.clusters, stage.pipeline.spec.topic, pools, stage.manifest)
    before = stage.tally.totals()
    with load, Watcher(stage.pipeline, stage.tally) as watcher:
        log(f"producing {story.rate:g} messages a second")
        load.send_first(FIRST_MESSAGES)
        wait("the first rows stored", stage.pipeline.quiet, START_TIMEOUT)
        load.start()
        load.wait(WARM_SECONDS)
        wait("a steady load", lambda: _steady(watcher, STEADY_SECONDS * story.rate), START_TIMEOUT)
        begun = time.time()
        killed = _change(story, stage, pools[CHANGED], log)
        over = time.time()
        log(f"rolled out after {over - begun:.1f} s; both revisions continue for {story.after:g} s")
        load.wait(load.clock() + story.after)
        unknown = load.end(DRAIN_TIMEOUT)
        stage.rows += load.rows
        log(f"produced {load.rows:,} rows ({unknown} messages never acknowledged); waiting until all are stored")
        stage.pipeline.wait_for("every stream quiet", stage.pipeline.quiet, DRAIN_TIMEOUT)
        log("auditing every replica")
        return _result(story, stage, begun, over, before, killed, pools[CHANGED])


def _steady(watcher: Watcher, messages: float) -> bool:
    """Every aggregator is ready, and all are behind by fewer than so many messages."""
    seen = watcher.latest
    return all(one.condition == "ready" for one in seen) and sum(one.lag for one in seen) < messages


def _change(story: Story, stage: Stage, pool: MixedPool, log: Log) -> str:
    """Declare the new columns and wait until they are rolled out; returns whom a SIGKILL has hit."""
    hit: list[str] = []
    with Supervisor(stage.servers, log) as supervisor, ExitStack() as exits:
        if story.kill is not None:
            exits.enter_context(_killing(story.kill, stage, supervisor, hit, log))
        exits.enter_context(_mixing(stage, pool, log))
        if not story.barrier:
            hit.append(_alter_behind(story, stage, supervisor, log))
        log("declaring two more columns")
        stage.change()
        wait("the rollout", stage.settled, ROLLOUT_TIMEOUT)
        if story.kill is not None:
            wait(f"the SIGKILL of {story.kill}", lambda: bool(hit), KILL_TIMEOUT)
        wait("every process up again", lambda: all(s.answers() for s in stage.servers.values()), START_TIMEOUT)
        wait("the rollout still at its end", stage.settled, ROLLOUT_TIMEOUT)
    return "".join(hit)


def _alter_behind(story: Story, stage: Stage, supervisor: Supervisor, log: Log) -> str:
    """Let an aggregator die between insert and acknowledgement, and alter the table before anybody takes over."""
    names = list(stage.pipeline.aggregators)
    victim = stage.pipeline.aggregators[names[story.seed % len(names)]]
    with supervisor.holding_down([victim.name]):
        victim.arm_fault("after-insert", action="kill-aggregator", table=CHANGED)
        wait(f"the death of {victim.name}", lambda: not victim.alive, KILL_TIMEOUT)
        stage.alter_behind()
    log(f"{victim.name} died between an insert and its acknowledgement; the table is altered")
    return f"{victim.name} after an insert, then ALTER"


@contextmanager
def _killing(kill: Kill, stage: Stage, supervisor: Supervisor, hit: list[str], log: Log) -> Iterator[None]:
    """Carries the kill out in a thread of its own once its moment has come."""
    over, before, server = threading.Event(), len(stage.operator.files.moments()), stage.servers[kill.victim]
    if server is stage.operator:
        stage.operator.die_at(Death(request=kill.request, number=kill.number, moment=kill.moment))

    def come() -> bool:
        moments = stage.operator.files.moments()[before:]
        return sum((m.request, m.moment) == (kill.request, kill.moment) for m in moments) >= kill.number

    def run() -> None:
        while not come():
            if over.wait(POLL):
                return
        over.wait(kill.delay)
        with supervisor.holding_down([kill.victim]):
            if server is not stage.operator:  # which does it itself, at the very request
                server.kill()
            hit.append(str(kill))
            log(f"killed: {kill}")
            over.wait(kill.down)

    with _thread(run, over):
        yield


@contextmanager
def _mixing(stage: Stage, pool: MixedPool, log: Log) -> Iterator[None]:
    """From the moment at which the new revision is recorded, half of the producers use it."""
    over = threading.Event()
    known = len(stage.history(pool.table).revisions)

    def run() -> None:
        while not over.wait(POLL * 10):
            history = stage.history(pool.table)
            if len(history.revisions) > known:
                pool.add(history)
                log("half of the messages are of the new revision from now on")
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


def _result(
    story: Story, stage: Stage, begun: float, over: float, before: Counter[str], killed: str, pool: MixedPool
) -> Result:
    report = stage.audit()
    # Not before it: a replica that was not needed for the quorum may still have to fetch the last parts.
    counts = {server.replica: _counts(server, pool, stage.changes) for server in stage.stack.clickhouse.values()}
    return Result(
        story,
        report=report,
        rows=stage.rows,
        changes=stage.changes,
        begun=begun,
        over=over,
        moments=[moment for moment in stage.operator.files.moments() if moment.at >= begun],
        lags=measure(stage.pipeline, since=begun),
        counted=stage.tally.totals() - before,
        killed=killed,
        verified=stage.verifier.settled(AUDIT_WAIT),
        statuses={replica: aggregator.status() for replica, aggregator in stage.pipeline.aggregators.items()},
        revisions=[len(stage.history(table).revisions) for table in TABLES],
        wrong_defaults={replica: wrong for replica, (wrong, _) in counts.items()},
        of_new_revision={replica: new for replica, (_, new) in counts.items()},
        crashes=stage.crashes(),
    )


def _counts(server: ClickHouseServer, pool: MixedPool, change: int) -> tuple[int, int]:
    """Rows of producers of the old revision that have not the defaults, and rows of producers of the new one."""
    of = "bitAnd(bitShiftRight(id, 31), 1023) = "
    old, *newer = pool.seeds
    new = newer[0] if newer else -1
    wrong = f"{of}{old} AND (seven_{change} != 7 OR loud_{change} != upper(page))"
    ((wrong_rows, newer_rows),) = server.execute(f"SELECT countIf({wrong}), countIf({of}{new}) FROM {CHANGED}")
    return int(wrong_rows), int(newer_rows)
