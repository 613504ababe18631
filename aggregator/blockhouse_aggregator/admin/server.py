"""What people and Kubernetes ask a running aggregator: /healthz, /readyz, /metrics, /status, /history, /threads; a page
that shows these; and /faults in tests.

It listens on loopback unless a token is set. What changes anything: /tables and /restart, for rollouts; /drain,
/streams and /log-level, for people; /faults when fault injection is on. Paths and keys are those of
`blockhouse.contract`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from aiohttp import web

from blockhouse.config.pipeline import Admin
from blockhouse.contract.aggregator import STATUS
from blockhouse.contract.decisive import digest
from blockhouse.page import page_route
from blockhouse.serving import Answer, HttpServer, respond_unless_known, route
from blockhouse_aggregator.admin.diagnosis import DiagnosisRoutes
from blockhouse_aggregator.admin.faults import FaultRoutes
from blockhouse_aggregator.admin.interventions import InterventionRoutes
from blockhouse_aggregator.admin.tables import TableRoutes
from blockhouse_aggregator.runtime.process.acceptances import Acceptances
from blockhouse_aggregator.runtime.process.draining import Draining
from blockhouse_aggregator.runtime.process.status import Answerable, standing_lines, status
from blockhouse_aggregator.runtime.stream.ownership_history import OwnershipHistory
from blockhouse_aggregator.runtime.tables.schema_rollouts import SchemaRollouts


class Administered(Answerable, Protocol):
    """An aggregator, as the admin API sees it."""

    history: OwnershipHistory

    def rollouts(self) -> SchemaRollouts: ...
    def draining(self) -> Draining: ...
    def acceptances(self) -> Acceptances: ...


class AdminServer(HttpServer):
    """The admin API of one aggregator."""

    def __init__(self, config: Admin, aggregator: Administered) -> None:
        token = config.token.read if config.token else None
        super().__init__(config.host, config.port, aggregator.figures.registry, token=token, tls=config.tls)
        self._aggregator = aggregator

    def health(self) -> Answer:
        """Always good: an aggregator that cannot recover ends by itself."""
        return Answer(True, "ok")

    def readiness(self) -> Answer:
        """Ready once every part of the start is over; before, `starting`. The lines after it name what it waits for, or
        what stands still: an unready pod helps no stream, and would hold up the very rollout that does."""
        ready, lines = self._aggregator.ready, standing_lines(status(self._aggregator))
        return Answer(ready, "\n".join(["ready" if ready else "starting", *lines]))

    def routes(self) -> Iterable[web.RouteDef]:
        """The page, status, tables and, while they are enabled, faults."""
        yield page_route()
        yield route(STATUS, self._status)
        yield from DiagnosisRoutes(self._aggregator.history.all).all()
        yield from InterventionRoutes(self._aggregator.draining, self._aggregator.acceptances, self._owned).all()
        yield from TableRoutes(self._aggregator.rollouts).all()
        yield from FaultRoutes(self._aggregator.faults).all()

    def _owned(self) -> tuple[int, int]:
        states = [owner.state for owner in self._aggregator.owners.values()]
        return len(states), sum(len(state.in_flight) for state in states if state is not None)

    async def _status(self, request: web.Request) -> web.Response:
        page = status(self._aggregator)
        return respond_unless_known(request, page, digest(page))
