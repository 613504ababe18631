"""`/faults`: what is armed, arm, disarm. Answers 404 to everything while fault injection is off."""

from __future__ import annotations

import json
from collections.abc import Iterable

from aiohttp import web
from pydantic import ValidationError

from blockhouse.serving import Handler
from blockhouse_aggregator.faults.armed import Faults
from blockhouse_aggregator.faults.model import ArmedFault, Point


class FaultRoutes:
    """GET /faults, PUT /faults/POINT, DELETE /faults/POINT, DELETE /faults."""

    def __init__(self, faults: Faults) -> None:
        self._faults = faults

    def all(self) -> Iterable[web.RouteDef]:
        yield web.get("/faults", self._guarded(self._list))
        yield web.delete("/faults", self._guarded(self._disarm))
        yield web.put("/faults/{point}", self._guarded(self._arm))
        yield web.delete("/faults/{point}", self._guarded(self._disarm))

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
        try:
            body = json.loads(await request.read())
            fault = ArmedFault.model_validate({**body, "point": point})
        except ValidationError as error:
            problems = [f"{'.'.join(map(str, e['loc'])) or 'fault'}: {e['msg']}" for e in error.errors()]
            raise web.HTTPBadRequest(text="\n".join(problems) + "\n") from None
        except (ValueError, TypeError, RecursionError):
            raise web.HTTPBadRequest(text='give a JSON object such as {"action": "delay", "seconds": 5}\n') from None
        self._faults.arm(fault)
        return self._state()

    async def _disarm(self, request: web.Request) -> web.Response:
        self._faults.disarm(_point(request) if "point" in request.match_info else None)
        return self._state()

    def _state(self) -> web.Response:
        armed = [
            {**state.fault.model_dump(mode="json"), "passes": state.passes, "strikes": state.strikes}
            for state in self._faults.armed()
        ]
        return web.json_response({"armed": armed, "struck": self._faults.struck()})


def _point(request: web.Request) -> Point:
    name = request.match_info["point"]
    try:
        return Point(name)
    except ValueError:
        raise web.HTTPNotFound(text=f"no fault point {name!r}; there are: {', '.join(Point)}\n") from None
