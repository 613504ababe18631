"""Every query of the dashboards, asked of a real Prometheus that scrapes a running pipeline: each is answered, has data
where a well pipeline has any, and shows a fault where there is one. The chart's alert rules see the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from e2e.chaos.pictures import RATE_INTERVAL, with_all
from e2e.pipeline import verifier_of
from e2e.stack import Stack
from e2e.stack.ports import Ports
from e2e.stack.prometheus import PrometheusServer
from scripts.dashboards.boards import fleet, pipeline, shard, table, verifier
from scripts.metrics_page import ALERTS
from tests.integration.runtime_pipeline import Loading, eventually, loading

pytestmark = pytest.mark.integration

BOARDS = [module.BOARD for module in (fleet, pipeline, shard, table, verifier)]
"""Those of programs that run here; the operator has no figures without a cluster."""
ONLY_OF_FAULTS = {
    "Streams",
    "Stopped",
    "Hazards",
    "Blocked and at risk",
    "Messages that wait",
    "Tables behind their streams",
    "Distance of its cursor from the log's end",
    "Inserts to be tried again",
    "Alerts that fire",
    "Alarms, rejoins, lost sessions",
    "Anomalies found",
    "Blocks rebuilt and sent again",
}
"""Panels that may be empty while all is well."""


SETTINGS = {"quorum": {"timeout": "4s"}}


@contextmanager
def scraping(loading: Loading, folder: Path) -> Iterator[PrometheusServer]:
    """Ends with Prometheus and the verifier stopped."""
    ports = Ports()
    check = verifier_of(loading.pipeline)
    targets = {"aggregators": [a.url for a in loading.aggregators], "verifier": [check.url]}
    jobs = {job: [url.removeprefix("http://") for url in urls] for job, urls in targets.items()}
    server = PrometheusServer(folder, port=ports["prometheus"], jobs=jobs, rules=[ALERTS])
    with ExitStack() as ending:
        ending.callback(ports.release)
        for started in (check, server):
            started.start()
            ending.callback(started.stop)
        yield server


def test_every_panel_is_answered_and_shows_a_fault(running_stack: Stack, tmp_path: Path) -> None:
    with (
        loading(running_stack, tmp_path, "dashboards", partitions=1, settings=SETTINGS) as running,
        scraping(running, tmp_path / "prometheus") as prometheus,
    ):
        known = running.feed.table("dashboards")
        panels = [panel for board in BOARDS for panel in board.panels()]
        queries = {(p.title, q.expr): with_all(q.expr, RATE_INTERVAL) for p in panels for q in p.queries}

        def empty() -> set[str]:
            found = {title for (title, _), expr in queries.items() if not prometheus.query(expr)}
            return found - ONLY_OF_FAULTS

        with running.feed.flowing(known):
            eventually(lambda: not empty(), 150)
            assert empty() == set()

        value, headers = running.feed.encode(known, [{"id": 7, "text": "early"}])
        running.feed.raw(value, {**headers, "table": "default.dashboards_absent"}, to=("a", 0), rows=1)

        waiting = {"table": "default.dashboards_absent", "reason": "UnknownTable"}
        for title in ("Tables behind their streams", "Messages that wait"):
            (expr,) = (expr for (of, _), expr in queries.items() if of == title)
            running.wait(title, lambda expr=expr: any(waiting.items() <= s.items() for s in prometheus.query(expr)))
        alert = 'ALERTS{alertname="BlockhouseTableUnavailable", alertstate="pending"}'
        running.wait("its alert", lambda: any(waiting.items() <= s.items() for s in prometheus.query(alert)))
