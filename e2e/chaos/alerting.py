"""Which alerts fire in a run: a real Prometheus beside it scrapes it and evaluates the shipped rules as they are."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import yaml

from e2e.chaos.world import World
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until
from e2e.stack.prometheus import PrometheusServer, Series
from e2e.stack.server import StackError

RULES = Path(__file__).parents[2] / "charts" / "blockhouse" / "files" / "alerts.yaml"
GROUPS = {"blockhouse-loading", "blockhouse-verifier"}
"""Rules about programs that run here. Of the others one is true where there is no operator."""
STEP = 1.0
"""Seconds between two evaluations of the rules, and between two samples of what they gave."""
_FIRING = 'ALERTS{alertstate="firing"}'
_NOT_ABOUT = {"__name__", "alertname", "alertstate", "severity", "job"}


@dataclass(frozen=True, slots=True)
class Firing:
    """One time an alert fired, from `began` to `ended` in seconds of the run; it still fires when that is None. `about`
    has the labels of each of its series, such as `cluster=a, partition=0`."""

    alert: str
    began: float
    ended: float | None
    about: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AlertReport:
    """Each time an alert fired, in order; and the addresses that Prometheus did not get metrics of at the end."""

    fired: tuple[Firing, ...]
    unscraped: tuple[str, ...] = ()


def firings(series: Sequence[Series], zero: float, until: float) -> tuple[Firing, ...]:
    """Each time an alert fired, in order. An alert fires while any of its `series` is there, which were sampled every
    STEP seconds up to the Unix time `until`; the run's clock began at `zero`."""
    by_alert: dict[str, dict[float, set[str]]] = defaultdict(lambda: defaultdict(set))
    for each in series:
        about = ", ".join(f"{key}={value}" for key, value in sorted(each.labels.items()) if key not in _NOT_ABOUT)
        for at in each.times:
            by_alert[each.labels["alertname"]][at].add(about)
    found = [
        Firing(
            alert,
            began=round(times[0] - zero, 1),
            ended=None if times[-1] > until - STEP else round(times[-1] + STEP - zero, 1),
            about=tuple(sorted(set().union(*(seen[at] for at in times)))),
        )
        for alert, seen in by_alert.items()
        for times in _unbroken(sorted(seen))
    ]
    return tuple(sorted(found, key=lambda firing: (firing.began, firing.alert)))


def _unbroken(times: Sequence[float]) -> Iterator[list[float]]:
    """The times, in runs without a gap."""
    run: list[float] = []
    for at in times:
        if run and at - run[-1] > 1.5 * STEP:
            yield run
            run = []
        run.append(at)
    if run:
        yield run


class Alerting:
    """The Prometheus of a run that scrapes the `targets`, addresses host:port. `clock` is in seconds of the run."""

    def __init__(self, server: PrometheusServer, targets: Collection[str], clock: Callable[[], float]) -> None:
        self._server = server
        self._targets = targets
        self._clock = clock
        self._began = time.time()

    def wait_resolved(self, timeout: float) -> bool:
        """Whether no alert fires any more, within `timeout` seconds."""
        return wait_until(lambda: not self._server.query(_FIRING), timeout=timeout, interval=STEP)

    def report(self) -> AlertReport:
        """What has fired so far, and what is not scraped now."""
        now = time.time()
        fired = firings(self._server.during(_FIRING, self._began, now, step=STEP), now - self._clock(), now)
        scraped = {labels["instance"] for labels in self._server.query("up == 1")}
        return AlertReport(fired, tuple(sorted(set(self._targets) - scraped)))

    def measured(self, expr: str, step: float) -> list[Series]:
        """What an expression gave from the beginning of the run's clock until now, with times in seconds of the run."""
        now = time.time()
        zero = now - self._clock()
        found = self._server.during(expr, zero, now, step=step)
        return [replace(series, times=tuple(at - zero for at in series.times)) for series in found]


@contextmanager
def alerting(world: World, folder: Path, clock: Callable[[], float], named: Collection[str]) -> Iterator[Alerting]:
    """Ends with Prometheus stopped. StackError for an alert among the `named` that no shipped rule is called."""
    groups = shipped()
    if unknown := set(named) - {rule["alert"] for group in groups for rule in group["rules"]}:
        raise StackError(f"{', '.join(sorted(unknown))}: no shipped alert about aggregators or the verifier")
    folder.mkdir(parents=True)
    rules = folder / "rules.yaml"
    rules.write_text(yaml.safe_dump({"groups": groups}))
    urls = {"aggregators": [each.url for each in world.aggregators.values()], "verifier": [world.verifier.url]}
    jobs = {job: [_address(url) for url in those] for job, those in urls.items()}
    pods = {_address(each.url): pod for pod, each in world.aggregators.items()}
    ports = Ports()
    server = PrometheusServer(folder, port=ports["prometheus"], jobs=jobs, rules=[rules], pods=pods)
    with ExitStack() as ending:
        ending.callback(ports.release)
        server.start()
        ending.callback(server.stop)
        yield Alerting(server, [target for targets in jobs.values() for target in targets], clock)


def _address(url: str) -> str:
    return url.removeprefix("http://")


def shipped() -> list[dict[str, Any]]:
    """The shipped groups of rules about programs that run here."""
    return [group for group in yaml.safe_load(RULES.read_text())["groups"] if group["name"] in GROUPS]
