"""`/tables/TABLE` and `/restart`: what a rollout asks: compare a table with its declaration, hold it, make it so,
release it; restart.

The answer to a hold says only that it is recorded. That it is obeyed is seen in every replica's `/status`: the table
names the rollout, and no stream has a block of it in flight.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import asdict
from typing import TypeVar

from aiohttp import web
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from blockhouse.errors import Blocked, Permanent, Retryable
from blockhouse.serving import Handler
from blockhouse_aggregator.runtime.rollouts import Rollouts


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Held(_Body):
    """Body of /tables/TABLE/hold."""

    rollout: str = Field(min_length=1, max_length=200)


class Declared(_Body):
    """Body of /tables/TABLE/difference."""

    ddl: str = Field(min_length=1, max_length=1 << 20)


class Applied(Held, Declared):
    """Body of /tables/TABLE. `restart`: the aggregators of the shard are to restart after a change."""

    restart: bool = False


class Restarted(_Body):
    """Body of /restart: the demand that is obeyed; 0 is none."""

    number: int = Field(ge=0)


BodyT = TypeVar("BodyT", bound=_Body)


class TableRoutes:
    """PUT and DELETE /tables/TABLE/hold, POST /tables/TABLE/difference, PUT /tables/TABLE, POST /restart.

    400 for a bad request, 409 for what cannot be done now (another rollout, no hold, a difference nobody may remove),
    422 for a declaration that cannot be used, 503 while the aggregator starts or a server is away.
    """

    def __init__(self, rollouts: Callable[[], Rollouts]) -> None:
        self._rollouts = rollouts

    def all(self) -> Iterable[web.RouteDef]:
        yield web.put("/tables/{table}/hold", _answered(self._hold))
        yield web.delete("/tables/{table}/hold", _answered(self._release))
        yield web.post("/tables/{table}/difference", _answered(self._difference))
        yield web.put("/tables/{table}", _answered(self._apply))
        yield web.post("/restart", _answered(self._restart))

    async def _hold(self, request: web.Request) -> web.Response:
        body = await _body(request, Held)
        return web.json_response((await self._rollouts().hold(_table(request), body.rollout)).model_dump())

    async def _release(self, request: web.Request) -> web.Response:
        body = await _body(request, Held)
        return web.json_response({"released": await self._rollouts().release(_table(request), body.rollout)})

    async def _difference(self, request: web.Request) -> web.Response:
        body = await _body(request, Declared)
        return web.json_response(asdict(await self._rollouts().gap(_table(request), body.ddl)))

    async def _apply(self, request: web.Request) -> web.Response:
        body = await _body(request, Applied)
        rollouts = self._rollouts()
        done = await rollouts.apply(_table(request), body.ddl, body.rollout, restart=body.restart)
        return web.json_response(asdict(done))

    async def _restart(self, request: web.Request) -> web.Response:
        body = await _body(request, Restarted)
        return web.json_response({"ends": self._rollouts().restart(body.number)})


def _answered(handler: Handler) -> Handler:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except Retryable as error:
            raise web.HTTPServiceUnavailable(text=f"{error}\n") from None
        except Blocked as error:
            raise web.HTTPConflict(text=f"{error}\n") from None
        except Permanent as error:
            raise web.HTTPUnprocessableEntity(text=f"{error}\n") from None

    return answer


def _table(request: web.Request) -> str:
    table = request.match_info["table"]
    if "." not in table:
        raise web.HTTPBadRequest(text="name the table as database.table\n")
    return table


async def _body(request: web.Request, kind: type[BodyT]) -> BodyT:
    try:
        return kind.model_validate(await request.json())
    except ValidationError as error:
        problems = [f"{'.'.join(map(str, e['loc'])) or 'body'}: {e['msg']}" for e in error.errors()]
        raise web.HTTPBadRequest(text="\n".join(problems) + "\n") from None
    except json.JSONDecodeError:
        raise web.HTTPBadRequest(text="give a JSON object\n") from None
