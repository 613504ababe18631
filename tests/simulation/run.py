"""One simulated run: a world made from a seed, its misfortunes, its healing, and the verdict."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import structlog

from blockhouse_aggregator import app, assembly
from blockhouse_aggregator.clickhouse import provenance as _provenance
from blockhouse_aggregator.kafka import member as _member
from blockhouse_aggregator.runtime.stream import owner as _owner
from tests.simulation import provenance, replica
from tests.simulation.clickhouse import Shard
from tests.simulation.clients import REPLACED
from tests.simulation.events import Events, event_of
from tests.simulation.faults import Misfortunes
from tests.simulation.kafka import Cluster
from tests.simulation.logs import BAD, HEADLESS, HOLE
from tests.simulation.member import open_session
from tests.simulation.operator import Operator
from tests.simulation.oracle import Oracle
from tests.simulation.replica import Node
from tests.simulation.world import Chances, Setting, World
from tests.simulation.zookeeper import Ensemble

PATIENCE = 400.0
"""Virtual seconds in which a healed world must come to rest."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """`harm` is None when all is well. `trace` is a number that two equal runs share."""

    seed: int
    harm: str | None
    seconds: float
    steps: int
    counts: dict[str, int]
    story: tuple[tuple[float, str, str], ...]
    trace: int


def setting_of(seed: int) -> Setting:
    """A world of the seed's own: mostly small, sometimes 32 replicas, from calm to wild."""
    random = Random(f"setting {seed}")
    replicas = random.choices([2, 3, 4, 8, 32], weights=[60, 18, 18, 3, 0.6])[0]
    clusters = random.choice([1, 1, 2])
    scarce = random.random() < 0.12  # metadata with room for fewer tables than there are
    wild = random.choice([0.3, 1.0, 2.0, 2.0])
    patient = random.random() < 0.15  # an insert may take longer than anybody waits for a lock
    session_timeout = random.choice([3.0, 6.0])

    def sometimes(probability: float, most: float) -> float:
        return random.uniform(0, most) if random.random() < probability else 0.0

    chances = Chances(
        commit_lost=wild * sometimes(0.5, 0.04),
        insert_lost=wild * sometimes(0.4, 0.06),
        slow_insert=wild * sometimes(0.3, 0.05),
        slow_fetch=wild * sometimes(0.3, 0.15),
        early_ok=random.choice([0.0, 1.0]),
        started_early=random.choice([0.0, 1.0]),
        strike=wild * sometimes(0.8, 0.05),
        corrupt_replay=sometimes(0.12, 0.5),
        misreport=sometimes(0.08, 0.1),
        cut=random.choice([0.0, 0.05, 0.2]),
        loading=wild * sometimes(0.3, 0.1),
        round=Random(f"rounds {seed}").choice([0.0, 0.0, 0.02]),
        late_join=Random(f"late joins {seed}").choice([0.0, 0.0, 0.3, 1.0]),
        proof_lost=Random(f"lost proofs {seed}").choice([0.0, 0.0, 0.0, 0.05]),
    )
    setting = Setting(
        seed=seed,
        clusters=clusters,
        partitions=max(random.choice([1, 2, 2]), replicas // 4),
        replicas=replicas,
        tables=24 if scarce else random.choice([1, 1, 2, 3]),
        messages=random.randint(15, 60) * (1 if replicas < 8 else 3),
        seconds=random.uniform(8, 25),
        faults=round(wild * random.randint(1, 3)),
        window=100 if patient else random.choice([2, 4, 12, 100]),
        window_seconds=3600 if patient else random.choice([100, 200, 3600]),
        split=random.choice([1, 1, 2]),
        quorum_timeout=20.0 if patient else random.choice([2.0, 4.0]),
        session_timeout=session_timeout,
        server_session=random.choice([session_timeout, 8.0, 12.0]),
        cleaner=random.choice([2.0, 5.0, 12.0]),
        max_age=random.choice([0.3, 1.0]),
        metadata_units=512 if scarce else 4095,
        slots=random.choice([8, 8, 1]),
        lease=random.choice([2.0, 6.0, 20.0]),
        chances=chances,
        zoned=random.random() < 0.5,
        new_tables=random.choice([0, 0, 1]),
        event=event_of(seed),
    )
    if setting.event == "clock":  # its blocks soon leave the window
        setting = replace(setting, window=2, quorum_timeout=2.0, cleaner=2.0)
    if setting.event == "part":
        # The part fails before its owner hands the stream over, which has lost its server.
        chances = replace(chances, started_early=1.0, corrupt_replay=0.8)
        setting = replace(setting, chances=chances, server_session=3.0)
    if setting.event == "swap" and Random(f"early ok {seed}").random() < 0.7:
        # Mostly "ok" comes for a block that the server knows, before its part has the quorum.
        setting = replace(setting, chances=replace(chances, early_ok=1.0))
    return setting


class Universe:
    """A world with everything in it. Directed tests steer one by hand; `simulate` leaves it to chance."""

    def __init__(self, setting: Setting, *, keep_story: bool = False) -> None:
        world = self.world = World(setting, keep_story=keep_story)
        self.shard = Shard(world)
        self.clusters: dict[str, Cluster] = {}
        self.oracle = Oracle(world, self.shard, self.clusters)
        for number in range(setting.clusters):
            name = "ab"[number]
            self.clusters[name] = Cluster(world, name, number if setting.zoned else 0, self.oracle.committed)
        self.ensemble = Ensemble(world)
        surroundings: dict[str, Any] = {"clusters": self.clusters, "ensemble": self.ensemble, "oracle": self.oracle}
        self.nodes = [
            Node(world, n, server.zone, shard=self.shard, **surroundings) for n, server in enumerate(self.shard.servers)
        ]
        self.misfortunes = Misfortunes(world, self.nodes, self.shard, self.clusters, self.ensemble)
        self.events = Events(world, self.nodes, self.clusters, self.ensemble, self.oracle, self.misfortunes)
        self.operator = Operator(world, self.nodes, self.shard, self.clusters, self.ensemble, self.oracle)
        world.loop.failed = lambda text: world.hurt(f"BUG: {text}")
        for node in self.nodes:
            world.later(world.random.uniform(0, 1.0), node.start)

    def run(self, seconds: float, over: Callable[[], bool] = lambda: False) -> bool:
        """Let virtual time pass, at most so long; ends at harm. True when `over`, asked twice a second."""
        world, looked = self.world, [-1.0]
        ended = [False]

        def stop() -> bool:
            if world.loop.time() - looked[0] >= 0.5:
                looked[0] = world.loop.time()
                ended[0] = over()
            return ended[0] or world.harm is not None

        world.loop.run(world.loop.time() + seconds, stop)
        return ended[0]

    def settle(self) -> None:
        """Heal, and wait until everything is stored and recorded; harm when it never is."""
        self.misfortunes.heal()
        if not self.run(PATIENCE, lambda: not self.oracle.unfinished()) and (why := self.oracle.unfinished()):
            self.world.hurt(why if why.startswith("LOSS") else f"STUCK: {PATIENCE:.0f} s after everything healed {why}")


@contextmanager
def universe(setting: Setting, *, keep_story: bool = False) -> Iterator[Universe]:
    """The product is in simulated hands as long as the context lasts."""
    made = Universe(setting, keep_story=keep_story)
    with replaced(made.world):
        yield made


def simulate(seed: int, *, keep_story: bool = False) -> Outcome:
    """Run the seed's world to its end."""
    with universe(setting_of(seed), keep_story=keep_story) as built:
        world = built.world
        _produce(world, built.clusters)
        built.misfortunes.begin()
        built.events.begin()
        if world.setting.event:
            built.operator.begin()
        built.run(world.setting.seconds)
        longer = max(0.0, built.misfortunes.asleep_until - world.loop.time())
        built.run(longer, lambda: not built.misfortunes.asleep_until)
        built.settle()
        story = tuple(world.story or ())
        return Outcome(seed, world.harm, world.loop.time(), world.loop.steps, world.counts, story, world.loop.trace)


def _produce(world: World, clusters: dict[str, Cluster]) -> None:
    """Messages of all tables, holes and bad ones among them, over most of the run."""
    setting = world.setting
    logs = [log for cluster in clusters.values() for log in cluster.logs]
    weights = [60, 1, 1, 2] if world.random.random() < 0.5 else [60, 0, 0, 0]
    left = [setting.messages]

    def produce() -> None:
        log = world.random.choice(logs)
        for _ in range(world.random.randint(1, 4) if not log.silent else 0):
            table = world.random.randrange(setting.tables)
            kind = world.random.choices([table, HOLE, HEADLESS, BAD + table], weights=weights)[0]
            log.kinds.append(kind)
        left[0] -= 1
        if left[0] > 0:
            world.later(world.random.expovariate(setting.messages / (0.9 * setting.seconds)), produce)

    world.later(0.5, produce)


# --- the product inside -------------------------------------------------------------------------------------


class SimLog:
    """In place of structlog's logger: errors that no world may cause are harm, everything may be logged."""

    def __init__(self, logger: Any, processors: Any, context: Any) -> None: ...

    world: World

    def bind(self, **_: Any) -> SimLog:
        return self

    new = bind

    def debug(self, event: str, **values: Any) -> None:
        self.world.log(event, values)

    info = debug

    def log(self, level: int, event: str, **values: Any) -> None:
        self.world.log(event, values)

    def error(self, event: str, **values: Any) -> None:
        self.world.log(event, values)
        judge(self.world, event, values)

    exception = warning = error


def judge(world: World, event: str, values: dict[str, Any]) -> None:
    """Harm that the product itself reports."""
    unexpected = event == "lease.failed" and "worker gone" not in values["error"]
    defects = ("internal_error", "stream.job_failed", "aggregator.failed", "conversation.unexpected", "member_crashed")
    if unexpected or event in defects:
        world.hurt(f"BUG: {event} {values.get('error', values)}")
    elif event == "stream.stopped" and values["reason"] != "StaleEpoch":  # of a stream that is lost already
        forced = world.counts.get("force offset") and values["reason"] in ("OffsetsReset", "OffsetsWentBack")
        if not forced and values["reason"] not in world.causes.get(values["stream"], ()):
            world.hurt(f"STOPPED: {values['stream']} without a cause: {values['reason']}: {values['message']}")
    elif event == "alarm":
        reason = values["reason"]
        if reason in world.causes.get(values["stream"], ()):
            return
        caused = {"ReplayDiffers": "corrupt replay", "ReportRejected": "false report"}.get(reason, "")
        if reason == "MetadataFull" or (caused and world.counts.get(caused)):
            return
        world.hurt(f"ALARM: {reason}: {values.get('message')}")


def watched(world: World, step: Callable[..., Any]) -> Callable[..., Any]:
    """The product's `step`, and harm when it brings a closed state back to life (I6)."""

    def watching(state: Any, event: Any, now_ms: int) -> Any:
        after, effects = step(state, event, now_ms)
        if state.closed and (effects or after != state):
            world.hurt(f"STEP: a closed state answers {type(event).__name__} with {effects}")
        return after, effects

    return watching


@contextmanager
def replaced(world: World) -> Iterator[None]:
    """The product with simulated clients, as long as the context lasts. One world at a time."""
    places: list[tuple[Any, str]] = [(m, name) for m in (app, assembly) for name in REPLACED if hasattr(m, name)]
    saved = [getattr(module, name) for module, name in places]
    members: Any = _member
    session = members.Session
    owners: Any = _owner
    step = owners.step
    newest_rows = _provenance.NEWEST_ROWS
    quiet: Callable[[Any], None] = sys.unraisablehook
    config = structlog.get_config()
    SimLog.world = world
    wrapper: Any = SimLog
    structlog.configure(wrapper_class=wrapper, cache_logger_on_first_use=False)
    try:
        for module, name in places:
            setattr(module, name, REPLACED[name])
        members.Session = open_session
        owners.step = watched(world, step)
        _provenance.NEWEST_ROWS = provenance.NEWEST_ROWS
        yield
    finally:
        sys.unraisablehook = lambda _: None  # coroutines of killed processes end now, in vain
        world.loop.bury()
        replica.here.clear()
        sys.unraisablehook = quiet
        for (module, name), value in zip(places, saved, strict=True):
            setattr(module, name, value)
        members.Session = session
        owners.step = step
        _provenance.NEWEST_ROWS = newest_rows
        structlog.configure(**config)
