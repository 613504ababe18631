"""What people and Kubernetes ask a running aggregator: /healthz, /readyz, /metrics, /status, /history, /threads; and
/faults in tests.

It listens on loopback unless a token is set. Only /tables and /restart, for rollouts, change anything, /log-level, and
/faults when fault injection is on. Paths and keys are those of `blockhouse.contract`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from aiohttp import web

from blockhouse.config.pipeline import Admin
from blockhouse.contract.aggregator import STATUS
from blockhouse.contract.decisive import digest
from blockhouse.serving import Answer, HttpServer, respond_unless_known, route
from blockhouse_aggregator.admin.diagnosis import DiagnosisRoutes
from blockhouse_aggregator.admin.faults import FaultRoutes
from blockhouse_aggregator.admin.tables import TableRoutes
from blockhouse_aggregator.runtime.process.status import Answerable, standing_lines, status
from blockhouse_aggregator.runtime.stream.ownership_history import OwnershipHistory
from blockhouse_aggregator.runtime.tables.schema_rollouts import SchemaRollouts


class Administered(Answerable, Protocol):
    """An aggregator, as the admin API sees it."""

    history: OwnershipHistory

    def rollouts(self) -> SchemaRollouts: ...


class AdminServer(HttpServer):
    """The admin API of one aggregator."""

    def __init__(self, config: Admin, aggregator: Administered) -> None:
        token = config.token.read if config.token else None
        super().__init__(config.host, config.port, aggregator.figures.registry, token=token)
        self._aggregator = aggregator

    def health(self) -> Answer:
        """Always good: an aggregator that cannot recover ends by itself."""
        return Answer(True, "ok")

    def readiness(self) -> Answer:
        """Ready once every part of the start is over; before, `starting`. The lines after it name what stands still: an
        unready pod helps no stream, and would hold up the very rollout that does."""
        if not self._aggregator.ready:
            return Answer(False, "starting")
        return Answer(True, "\n".join(["ready", *standing_lines(status(self._aggregator))]))

    def routes(self) -> Iterable[web.RouteDef]:
        """Status, tables and, while they are enabled, faults."""
        yield route(STATUS, self._status)
        yield from DiagnosisRoutes(self._aggregator.history.all).all()
        yield from TableRoutes(self._aggregator.rollouts).all()
        yield from FaultRoutes(self._aggregator.faults).all()

    async def _status(self, request: web.Request) -> web.Response:
        page = status(self._aggregator)
        return respond_unless_known(request, page, digest(page))
