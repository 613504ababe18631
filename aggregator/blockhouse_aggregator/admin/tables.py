"""`/tables/TABLE` and `/restart`, for rollouts: compare a table with its declaration, pause it, change it, release it;
restart. Bodies, answers and paths are those of the contract.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from aiohttp import web

from blockhouse.contract import rollouts as contract
from blockhouse.serving import body as body_of
from blockhouse.serving import respond, route
from blockhouse_aggregator.admin.answered import answered
from blockhouse_aggregator.runtime.tables.schema_rollouts import SchemaRollouts


class TableRoutes:
    """What a rollout asks of this aggregator.

    400 for a bad request, 409 for what cannot be done now (another rollout, no pause, a difference that must not be
    removed), 422 for a declaration that cannot be used, 503 while the aggregator starts or a server is unavailable.
    """

    def __init__(self, rollouts: Callable[[], SchemaRollouts]) -> None:
        self._rollouts = rollouts

    def all(self) -> Iterable[web.RouteDef]:
        yield route(contract.HOLD, answered(self._hold))
        yield route(contract.RELEASE, answered(self._release))
        yield route(contract.DIFFERENCE, answered(self._difference))
        yield route(contract.APPLY, answered(self._apply))
        yield route(contract.RESTART, answered(self._restart))

    async def _hold(self, request: web.Request) -> web.Response:
        body = await body_of(request, contract.HoldRequest)
        pause = await self._rollouts().pause(_table(request), body.rollout)
        return respond(contract.HoldAnswer(rollout=pause.rollout, since_ms=pause.since_ms))

    async def _release(self, request: web.Request) -> web.Response:
        body = await body_of(request, contract.HoldRequest)
        released = await self._rollouts().release(_table(request), body.rollout)
        return respond(contract.ReleaseAnswer(released=released))

    async def _difference(self, request: web.Request) -> web.Response:
        body = await body_of(request, contract.DifferenceRequest)
        return respond(await self._rollouts().gap(_table(request), body.ddl))

    async def _apply(self, request: web.Request) -> web.Response:
        body = await body_of(request, contract.ApplyRequest)
        rollouts = self._rollouts()
        return respond(await rollouts.apply(_table(request), body.ddl, body.rollout, restart=body.restart))

    async def _restart(self, request: web.Request) -> web.Response:
        body = await body_of(request, contract.RestartRequest)
        return respond(contract.RestartAnswer(ends=self._rollouts().restart(body.number)))


def _table(request: web.Request) -> str:
    table = request.match_info["table"]
    if "." not in table:
        raise web.HTTPBadRequest(text="name the table as database.table\n")
    return table
