"""Named faults, and random scenarios made of them. Pure: chance is a `random.Random` that is handed in."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from e2e.chaos.layout import EVERYTHING, KAFKA, Layout, pod_name
from e2e.chaos.scenario import DISK, NETWORK, Fault, Kind, Scenario

Make = Callable[[random.Random, Layout], list[Fault]]
"""Faults of a case, from time 0."""

FIRST, QUIET = 5.0, 15.0
"""Seconds without a fault at the beginning, and at the end of the production."""
CALM_SECONDS = 7.0
"""For so long all must be well before a fault of a series counts as recovered from: longer than a session, after which
the last death that was not noticed shows."""
PAUSE, RECOVERY_TIMEOUT = 3.0, 90.0
"""Seconds between a recovery and the next fault of a series, and after which a fault counts as not recovered from."""


def _shard(rng: random.Random, layout: Layout) -> int:
    """No chance is taken for one shard: its seeds keep the meaning they had before there were two."""
    return rng.randint(1, layout.shards) if layout.shards > 1 else 1


def _pod(rng: random.Random, layout: Layout) -> str:
    replica = rng.randint(1, layout.replicas)
    return pod_name(_shard(rng, layout), replica)


def _aggregator(rng: random.Random, layout: Layout) -> str:
    return f"aggregator-{_pod(rng, layout)}"


def _clickhouse(rng: random.Random, layout: Layout) -> str:
    return f"clickhouse-{_pod(rng, layout)}"


def _cluster(rng: random.Random) -> str:
    return rng.choice(KAFKA)


def _one(kind: Kind, target: str, low: float, high: float, rng: random.Random, **more: object) -> list[Fault]:
    values = {"at": 0, "kind": kind, "target": target, "seconds": round(rng.uniform(low, high), 1), **more}
    return [Fault.model_validate(values)]


def _pair(rng: random.Random, layout: Layout) -> tuple[str, str]:
    """Two that talk to each other."""
    n = rng.randint(1, layout.replicas)
    m = rng.choice([m for m in range(1, layout.replicas + 1) if m != n])
    shard = _shard(rng, layout)
    pod, other = pod_name(shard, n), pod_name(shard, m)
    return rng.choice(
        [
            (f"aggregator-{pod}", "kafka-a"),
            (f"aggregator-{pod}", "kafka-b"),
            (f"aggregator-{pod}", "zookeeper"),
            (f"aggregator-{pod}", f"clickhouse-{pod}"),
            (f"clickhouse-{pod}", "zookeeper"),
            (f"clickhouse-{pod}", f"clickhouse-{other}"),
            (f"replica-{pod}", "zookeeper"),
            ("zone-a", "zone-b"),
        ]
    )


def _both_zones(rng: random.Random, _: Layout) -> list[Fault]:
    first, second = rng.sample(["zone-a", "zone-b"], 2)
    down = rng.uniform(8, 12)
    return [
        Fault(at=0, kind=Kind.KILL, target=first, seconds=down),
        Fault(at=down + 25, kind=Kind.KILL, target=second, seconds=down),
    ]


CASES: dict[str, Make] = {
    "kill-aggregator": lambda rng, n: _one(Kind.KILL, _aggregator(rng, n), 1, 8, rng),
    "strike-after-commit": lambda rng, n: _one(Kind.STRIKE, _aggregator(rng, n), 1, 8, rng, point="after-commit"),
    "strike-after-insert": lambda rng, n: _one(Kind.STRIKE, _aggregator(rng, n), 1, 8, rng, point="after-insert"),
    "freeze-aggregator": lambda rng, n: _one(Kind.FREEZE, _aggregator(rng, n), 2, 14, rng),
    "kill-spark-jvm": lambda rng, n: _one(Kind.MEMBER, _aggregator(rng, n), 1, 2, rng, member="java"),
    "kill-python-workers": lambda rng, n: _one(Kind.MEMBER, _aggregator(rng, n), 1, 2, rng, member="worker"),
    "kill-clickhouse": lambda rng, n: _one(Kind.KILL, _clickhouse(rng, n), 1, 10, rng),
    "freeze-clickhouse": lambda rng, n: _one(Kind.FREEZE, _clickhouse(rng, n), 2, 12, rng),
    "kill-kafka": lambda rng, _: _one(Kind.KILL, _cluster(rng), 1, 8, rng),
    "freeze-kafka": lambda rng, _: _one(Kind.FREEZE, _cluster(rng), 2, 12, rng),
    "kill-zookeeper": lambda rng, _: _one(Kind.KILL, "zookeeper", 1, 6, rng),
    "kill-verifier": lambda rng, _: _one(Kind.KILL, "verifier", 1, 6, rng),
    "freeze-zookeeper": lambda rng, _: _one(Kind.FREEZE, "zookeeper", 2, 10, rng),
    "partition": lambda rng, n: [
        Fault(at=0, kind=Kind.PARTITION, target=t, peer=p, seconds=rng.uniform(3, 14)) for t, p in [_pair(rng, n)]
    ],
    "packet-loss": lambda rng, n: [
        Fault(at=0, kind=Kind.LOSS, target=t, peer=p, seconds=rng.uniform(5, 15), share=rng.uniform(0.05, 0.4))
        for t, p in [_pair(rng, n)]
    ],
    "delay": lambda rng, n: [
        Fault(at=0, kind=Kind.DELAY, target=t, peer=p, seconds=rng.uniform(5, 15), delay=rng.uniform(0.01, 0.3))
        for t, p in [_pair(rng, n)]
    ],
    "disk-full": lambda rng, _: _one(Kind.DISK_FULL, DISK, 5, 15, rng),
    "zone-down": lambda rng, _: _one(Kind.KILL, rng.choice(["zone-a", "zone-b"]), 8, 20, rng),
    "zone-cut-off": lambda rng, _: _one(Kind.PARTITION, "zone-a", 8, 15, rng, peer="zone-b"),
    "zones-in-turn": _both_zones,
    "rolling-restart-aggregators": lambda rng, _: _one(Kind.RESTART, "aggregators", 1, 1.1, rng),
    "rolling-restart-clickhouse": lambda rng, _: _one(Kind.RESTART, "clickhouses", 1, 1.1, rng),
    "skew-kafka": lambda rng, _: _one(
        Kind.SKEW, _cluster(rng), 8, 20, rng, offset=rng.choice([-1, 1]) * round(rng.uniform(60, 600))
    ),
    "power-loss": lambda rng, _: _one(Kind.KILL, EVERYTHING, 2, 10, rng),
    "shard-down": lambda rng, n: _one(Kind.KILL, f"shard-{_shard(rng, n)}", 10, 15, rng),
}
OVERLAPPING, CALM = 0.7, (5.0, 15.0)
"""Part of the cases of a random run that are followed by another before they are over, and seconds until the next where
they are not."""
WINDOWS = (30, 100, 10_000)
"""Deduplication windows a random run may have: with the small ones old intents are decided by provenance."""
_LONG = {"zones-in-turn", "rolling-restart-aggregators", "rolling-restart-clickhouse"}
"""Cases that take a minute or more: only in runs of three minutes and more."""
_OF_SHARDS = {"shard-down"}
"""Cases that prove something only where there is another shard."""


def series(cases: Sequence[str], runs: int, seed: int, replicas: int, rate: float, *, shards: int = 1) -> Scenario:
    """Each case so many times and never two at once, in an order of chance: what one leaves behind is not always the
    same other's burden."""
    rng, layout = random.Random(seed), Layout(replicas, shards)
    order = [case for case in cases for _ in range(runs)]
    rng.shuffle(order)
    faults = tuple(
        fault.model_copy(update={"at": PAUSE, "case": case}) for case in order for fault in CASES[case](rng, layout)
    )
    return Scenario(
        name="table",
        seed=seed,
        shards=shards,
        replicas=replicas,
        seconds=sum(fault.seconds + RECOVERY_TIMEOUT for fault in faults),
        rate=rate,
        replays=any(case.startswith("strike") for case in cases),  # others may fall between two blocks
        in_turn=True,
        faults=faults,
    )


def plan(
    seed: int, seconds: float, replicas: int, rate: float, *, shards: int = 1, without: Sequence[Kind] = ()
) -> Scenario:
    """Random cases that fill `seconds`, most of them while another is in progress. The first is always a kill between
    insert and acknowledgement: a run without a replay proves little. `without`: kinds that this machine does not
    permit."""
    rng, layout = random.Random(seed), Layout(replicas, shards)
    usable = permitted_cases(without, shards)
    short = [name for name in usable if name not in _LONG or seconds >= 180]
    faults = [_moved(fault, FIRST) for fault in CASES["strike-after-insert"](rng, layout)]
    at = FIRST + rng.uniform(0.5, 4)
    while at < seconds - QUIET:
        case = [_moved(fault, at) for fault in CASES[rng.choice(short)](rng, layout)]
        end = max(fault.end for fault in case)
        if end <= seconds - QUIET / 2:
            faults += case
            # Most begin before this one is over; else there is a time to recover.
            at = rng.uniform(at, end) if rng.random() < OVERLAPPING else end + rng.uniform(*CALM)
        else:
            at += rng.uniform(1, 4)
    ordered = tuple(sorted(faults, key=lambda fault: fault.at))
    window = rng.choice(WINDOWS)
    return Scenario(
        name="random",
        seed=seed,
        shards=shards,
        replicas=replicas,
        seconds=seconds,
        rate=rate,
        window=window,
        faults=ordered,
    )


def not_permitted(isolated: bool, clocks: bool) -> dict[str, tuple[Kind, ...]]:
    """Kinds to leave out on a machine without namespaces of our own, or without a way to shift clocks, by reason."""
    missing = {
        "not root": () if isolated else (*sorted(NETWORK), Kind.DISK_FULL),
        "no libfaketime (`make setup` installs it)": () if clocks else (Kind.SKEW,),
    }
    return {why: kinds for why, kinds in missing.items() if kinds}


def permitted_cases(without: Sequence[Kind], shards: int = 1) -> list[str]:
    """The cases that need none of these kinds, and no more shards than there are."""
    cases = [name for name in CASES if shards > 1 or name not in _OF_SHARDS]
    return [name for name in cases if not {f.kind for f in CASES[name](random.Random(0), Layout(2, 2))} & {*without}]


def _moved(fault: Fault, by: float) -> Fault:
    return fault.model_copy(update={"at": round(fault.at + by, 1)})
