"""What a pipeline looks like from outside: lag, reasons, /readyz, `blockhouse status`, and the shipped alert rules as a
real Prometheus that scrapes it evaluates them."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import yaml

from blockhouse.contract.aggregator import StreamStatus
from e2e.pipeline import AggregatorProcess
from e2e.stack.ports import Ports
from e2e.stack.prometheus import PrometheusServer
from scripts.metrics_page import ALERTS
from tests.integration.runtime_pipeline import Loading, eventually

SHOWN_WITHIN = 15
"""Seconds until a fault has to show everywhere, and until nothing shows it any more once all is stored again."""
LATER = 61.0
"""Seconds: how much later than now a rule is evaluated, on what was scraped last. A rule that asks for a minute of
standing still needs no minute of the test's, and gets no other expression than the shipped one."""
RULES: Mapping[str, str] = {
    rule["alert"]: rule["expr"] for group in yaml.safe_load(ALERTS.read_text())["groups"] for rule in group["rules"]
}
STANDS_STILL, UNAVAILABLE, UNFIT = "BlockhouseStreamStandsStill", "BlockhouseTableUnavailable", "BlockhouseReplicaUnfit"
"""The alerts of these faults."""


@dataclass(frozen=True)
class Fault:
    """What has to be seen of a fault of one stream: one of the `reasons`, at least so much `lag` in messages (None:
    nothing may be claimed), and all of the `alerts`. `table`, full name: the reason is then the table's."""

    name: str
    reasons: frozenset[str]
    lag: int | None
    alerts: tuple[str, ...] = (STANDS_STILL,)
    table: str = ""


@contextmanager
def prometheus_of(loading: Loading, folder: Path) -> Iterator[PrometheusServer]:
    """Scrapes the aggregators every second; ends with it stopped."""
    ports = Ports()
    targets = [aggregator.url.removeprefix("http://") for aggregator in loading.aggregators]
    server = PrometheusServer(folder, port=ports["prometheus"], jobs={"aggregators": targets}, rules=[ALERTS])
    with ExitStack() as ending:
        ending.callback(ports.release)
        server.start()
        ending.callback(server.stop)
        yield server


@dataclass(frozen=True)
class Monitored:
    """A pipeline and the Prometheus that scrapes it."""

    loading: Loading
    prometheus: PrometheusServer

    def shows(self, fault: Fault, owner: AggregatorProcess, stream: str) -> StreamStatus:
        """Every place shows the fault within SHOWN_WITHIN seconds of now; the stream's status then."""
        after = self._each(
            {
                "lag": lambda: self._lags(fault, owner, stream),
                "/status": lambda: self._reason(fault, owner, stream) is not None,
                "/readyz": lambda: any(reason in self._readiness(owner, fault, stream) for reason in fault.reasons),
                "alert": lambda: all(self._alerted(alert, fault, owner, stream) for alert in fault.alerts),
                "status": lambda: self._printed(fault, stream),
            }
        )
        found = owner.stream(stream)
        assert found is not None
        why = found.lagging_tables if fault.table else found.standing
        print(f"SEEN | {fault.name} | lag {found.lag}, {found.lag_seconds} s | {why} | {fault.alerts} | {after}")
        return found

    def clear(self, fault: Fault) -> None:
        """No place shows any fault within SHOWN_WITHIN seconds of now, and none of the alerts is true of anything."""
        after = self._each(
            {
                "lag": lambda: all(_well(s) for a in self.loading.aggregators for s in a.streams()),
                "/readyz": lambda: all(a.get("/readyz").strip() == "ready" for a in self.loading.aggregators),
                "alert": lambda: not any(map(self._asked, (STANDS_STILL, UNAVAILABLE, UNFIT))),
                "status": lambda: self._status().returncode == 0,
            }
        )
        print(f"CLEAR | {fault.name} | {after}")

    def stored(self, what: str, owner: AggregatorProcess, stream: str, end: int) -> None:
        """All of the stream below `end` is stored within SHOWN_WITHIN seconds of now."""
        after = self._each(
            {"lag": lambda: (found := owner.stream(stream)) is not None and (found.stored or 0) >= end and _well(found)}
        )
        print(f"SEEN | {what} | stored | {after}")

    def _each(self, places: Mapping[str, Callable[[], bool]]) -> Mapping[str, float]:
        """Seconds after which each place was right; fails when one was not in time. A place is read once those before
        it are right: the last one is a command, whose start would delay them on a busy machine."""
        began, after = time.monotonic(), dict[str, float]()

        def look() -> bool:
            for place, right in places.items():
                if place not in after:
                    if not right():
                        return False
                    after[place] = round(time.monotonic() - began, 1)
            return True

        eventually(look, SHOWN_WITHIN)
        missing = places.keys() - after.keys()
        assert not missing, f"not right within {SHOWN_WITHIN} s: {missing}; {self._evidence()}"
        return after

    def _evidence(self) -> str:
        pages = [[(s.stream, s.lag, s.standing, s.lagging) for s in a.streams()] for a in self.loading.aggregators]
        printed = self._status()
        return f"{pages}\n{printed.returncode}\n{printed.stdout}"

    # --- the places ---------------------------------------------------------------------------------------------

    def _reason(self, fault: Fault, owner: AggregatorProcess, stream: str) -> str | None:
        found = owner.stream(stream)
        if found is None:
            return None
        given = {t.reason for t in found.lagging_tables if t.table == fault.table}
        if not fault.table and found.standing is not None:
            given = {found.standing.reason}
        return next(iter(given & fault.reasons), None)

    def _lags(self, fault: Fault, owner: AggregatorProcess, stream: str) -> bool:
        """The status page and the gauge, which are read one after the other, each lag; the age is that of something."""
        found = owner.stream(stream)
        shown = owner.metric("blockhouse_lag_messages", stream=stream)
        if fault.lag is None:
            return found is not None and (found.lag, found.lag_seconds, shown) == (None, None, 0)
        aged = owner.metric("blockhouse_lag_seconds", stream=stream) > 0
        return found is not None and (found.lag or 0) >= fault.lag and shown >= fault.lag and aged

    def _readiness(self, owner: AggregatorProcess, fault: Fault, stream: str) -> str:
        """The line of /readyz about the stream or its table."""
        about = f"{stream} {fault.table}" if fault.table else f"{stream} stands still"
        return next((line for line in owner.get("/readyz").splitlines() if line.startswith(about)), "")

    def _alerted(self, alert: str, fault: Fault, owner: AggregatorProcess, stream: str) -> bool:
        """The rule is true of a series whose labels, those of them that name what the fault is about, name it."""
        names = ("cluster", "topic", "partition", "table", "instance")
        values = (*stream.split("/"), fault.table, owner.url.removeprefix("http://"))
        about = dict(zip(names, values, strict=True))
        return any(
            {**about, **labels}.items() >= about.items() and {labels.get("reason", "")} <= {"", *fault.reasons}
            for labels in self._asked(alert)
        )

    def _asked(self, alert: str) -> list[Mapping[str, str]]:
        return self.prometheus.query(RULES[alert], at=time.time() + LATER)

    def _printed(self, fault: Fault, stream: str) -> bool:
        done = self._status()
        named = (fault.table or stream) in "".join(done.stdout.split())
        return done.returncode == 1 and named and any(reason in done.stdout for reason in fault.reasons)

    def _status(self) -> subprocess.CompletedProcess[str]:
        """`blockhouse status`, as a person runs it."""
        (program, *_) = {aggregator.program for aggregator in self.loading.aggregators}
        addresses = [aggregator.url for aggregator in self.loading.aggregators]
        return subprocess.run(
            [str(program), "status", *addresses], capture_output=True, text=True, check=False, timeout=60
        )


def _well(stream: StreamStatus) -> bool:
    return stream.lag == 0 and stream.lag_seconds == 0 and stream.standing is None
