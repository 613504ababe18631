"""`/faults`: what is armed, arm, disarm. Answers 404 to everything while fault injection is off."""

from __future__ import annotations

from collections.abc import Iterable

from aiohttp import web
from pydantic import ValidationError

from blockhouse.contract.base import faults
from blockhouse.contract.faults import ARM, DISARM, DISARM_ALL, FAULTS, ArmedAnswer, FaultRequest, FaultsAnswer
from blockhouse.serving import Handler, body, respond, route
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.faults.model import ArmedFault, Point


class FaultRoutes:
    """GET /faults, PUT /faults/POINT, DELETE /faults/POINT, DELETE /faults."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def all(self) -> Iterable[web.RouteDef]:
        yield route(FAULTS, self._guarded(self._list))
        yield route(DISARM_ALL, self._guarded(self._disarm))
        yield route(ARM, self._guarded(self._arm))
        yield route(DISARM, self._guarded(self._disarm))

    def _guarded(self, handler: Handler) -> Handler:
        async def answer(request: web.Request) -> web.StreamResponse:
            if not self._faults.enabled:
                raise web.HTTPNotFound(text="fault injection is off: it needs faults.enabled in the configuration\n")
            return await handler(request)

        return answer

    async def _list(self, _: web.Request) -> web.Response:
        return self._state()

    async def _arm(self, request: web.Request) -> web.Response:
        point = _point(request)
        given = await body(request, FaultRequest)
        try:
            fault = ArmedFault(point=point, **given.model_dump())
        except ValidationError as error:
            raise web.HTTPBadRequest(text="\n".join(faults(error)) + "\n") from None
        self._faults.arm(fault)
        return self._state()

    async def _disarm(self, request: web.Request) -> web.Response:
        self._faults.disarm(_point(request) if "point" in request.match_info else None)
        return self._state()

    def _state(self) -> web.Response:
        armed = tuple(
            ArmedAnswer(**state.fault.model_dump(mode="json"), passes=state.passes, strikes=state.strikes)
            for state in self._faults.armed()
        )
        return respond(
            FaultsAnswer(armed=armed, struck={str(point): times for point, times in self._faults.struck().items()})
        )


def _point(request: web.Request) -> Point:
    name = request.match_info["point"]
    try:
        return Point(name)
    except ValueError:
        raise web.HTTPNotFound(text=f"no fault point {name!r}; there are: {', '.join(Point)}\n") from None
