"""Two pipelines to which something happens while one of them restarts its pods, and the judge of how that went."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime

from blockhouse_operator.api import labels
from e2e.cluster import Cluster, Request
from e2e.scenarios.pod_history import PodHistory
from e2e.scenarios.resources import Manifest, at_home, companions, example, patched
from e2e.scenarios.site import Site
from e2e.stack.process import wait_until

ROLLING, RESTING = "rolling", "resting"
REPLICAS = 4
"""Of the one shard of each."""
HEALED_SECONDS = 420.0
"""Until all is as desired after a fault, on a machine that does much else."""


@dataclass(frozen=True, slots=True)
class Bounds:
    """What the API server may have been asked for from the restart's first step until all is as desired again."""

    writes: int
    lists: int
    """Of pods: each reconcile that decides a step lists them, and so does a watch that begins again."""


@dataclass
class Fleet:
    """`pipelines` are as they were applied last, by name."""

    site: Site
    cluster: Cluster
    namespace: str
    pipelines: dict[str, Manifest] = field(default_factory=dict)
    asked: int = 0
    """Restarts so far."""

    @classmethod
    def made(cls, site: Site, namespace: str) -> Fleet:
        """Both pipelines, ready."""
        assert isinstance(site.cluster, Cluster), "the faults are done to programs of our own"
        fleet = cls(site, site.cluster, namespace)
        site.apply(*companions(namespace))
        for name in (ROLLING, RESTING):
            fleet.pipelines[name] = patched(
                at_home(example(), site.surroundings, name=name, namespace=namespace), shards=1
            )
        with site.operator():
            site.apply(*fleet.pipelines.values())
            fleet.heal()
        return fleet

    def heal(self) -> None:
        """Wait until both are Ready and every pod is what it should be."""
        for name in self.pipelines:
            self.site.wait_settled(name, self.namespace, timeout=HEALED_SECONDS)

    def roll(self) -> None:
        """Ask for a restart of all replicas of one pipeline."""
        self.asked += 1
        word = f"{labels.RESTART}=number-{self.asked}"
        self.site.cluster.kubectl("annotate", "ba", ROLLING, word, "--overwrite", "-n", self.namespace)

    def endure(self, seconds: float) -> None:
        """Let time pass during a fault. Operators that end because they lost their lease are started again."""

        def passes() -> bool:
            self.site.keep_alive()
            return False

        wait_until(passes, timeout=seconds, interval=1.0)

    @contextmanager
    def rolling(self, bounds: Bounds) -> Iterator[Roll]:
        """A rolling restart that has begun, for a fault to happen in the block; afterwards it is judged."""
        with PodHistory.of(self.cluster.kubeconfig, self.namespace) as history:
            self.site.wait("the history knows every pod", lambda: len(history.present()) == 2 * REPLICAS)
            roll = Roll(self, history, self.cluster.audit.mark(), history.present())
            self.roll()
            yield roll
            roll.judge(bounds)


@dataclass(frozen=True)
class Roll:
    """One restart of all replicas of ROLLING. `before` has the uids of all replicas' pods.

    `starts` are times, as `Request.at`, between which an API server was starting: before it is ready it may know no
    roles, and refuses every request.
    """

    fleet: Fleet
    history: PodHistory
    began: int
    before: dict[str, str]
    starts: list[tuple[str, str]] = field(default_factory=list)

    def start_api_server(self) -> None:
        began = _now()
        self.fleet.cluster.api.start()
        self.starts.append((began, _now()))

    def evicted(self) -> Counter[str]:
        """How often operators ended each pod; the API server agreed."""
        return Counter(r.name for r in self._asked() if ends_a_pod(r) and r.code < 300)

    def wait_evicted(self, count: int) -> None:
        """Wait until so many pods were ended."""
        self.fleet.site.wait(
            f"{count} pods are restarted", lambda: self.evicted().total() >= count, timeout=HEALED_SECONDS
        )

    def judge(self, bounds: Bounds) -> None:
        """AssertionError, with what was counted, unless each pod was restarted once, one at a time, without a storm."""
        site = self.fleet.site
        site.wait("every pod of the restarted pipeline is another one", self._renewed, timeout=HEALED_SECONDS)
        self.fleet.heal()
        writes, lists = self._counts()
        print(f"writes: {writes.total()} {dict(writes.most_common())}\nlists: {dict(lists.most_common())}")  # noqa: T201
        assert self.evicted() == {f"{name}-0": 1 for name in self.before if name.startswith(f"{ROLLING}-")}
        together = {shard: sorted(down) for shard, down in self.history.most_down().items() if len(down) > 1}
        assert together == {}, "replicas of a shard were down at the same time"
        kept = {name: uid for name, uid in self.history.present().items() if name.startswith(f"{RESTING}-")}
        assert kept.items() <= self.before.items(), "nothing was asked of this pipeline"
        assert writes.total() <= bounds.writes, writes
        assert lists["pods"] <= bounds.lists, lists
        refused = [str(r) for r in self._asked() if r.code in (401, 403) and not self._starting(r.at)]
        assert refused == [], refused

    def _starting(self, at: str) -> bool:
        return any(began <= at <= ready for began, ready in self.starts)

    def _renewed(self) -> bool:
        present = self.history.present()
        return present.keys() == self.before.keys() and all(
            present[name] != uid for name, uid in self.before.items() if name.startswith(f"{ROLLING}-")
        )

    def _counts(self) -> tuple[Counter[str], Counter[str]]:
        """Writes but renewals of leases, and lists, by what they were about."""
        asked = list(self._asked())
        writes = Counter(f"{r.verb} {r.resource}" for r in asked if r.writes and r.resource != "leases")
        return writes, Counter(r.resource for r in asked if r.verb == "list")

    def _asked(self) -> Iterator[Request]:
        """What operators, of whatever release, asked."""
        for request in self.fleet.cluster.audit.requests(since=self.began):
            if request.user.endswith("-operator"):
                yield request


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def ends_a_pod(request: Request) -> bool:
    return (request.verb, request.resource) in {("create", "pods/eviction"), ("delete", "pods")}
