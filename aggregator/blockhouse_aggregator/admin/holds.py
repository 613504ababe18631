"""`/tables/TABLE/hold`: hold a table in every stream of the shard, for a rollout, and release it.

The answer to PUT says only that the hold is recorded. That it is obeyed is seen in every replica's `/status`: the table
names the rollout, and no stream has a block of it in flight.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Protocol

from aiohttp import web

from blockhouse.errors import Blocked, BlockhouseError, Retryable
from blockhouse_aggregator.coordination.holds import Hold


class Holdable(Protocol):
    """What can be asked to hold tables."""

    async def hold(self, table: str, rollout: str) -> Hold: ...
    async def release(self, table: str, rollout: str) -> bool: ...


class HoldRoutes:
    """PUT and DELETE /tables/TABLE/hold, each with {"rollout": NAME}; 409 while another rollout holds the table."""

    def __init__(self, holdable: Holdable) -> None:
        self._holdable = holdable

    def add_to(self, app: web.Application) -> None:
        app.router.add_put("/tables/{table}/hold", _answered(self._hold))
        app.router.add_delete("/tables/{table}/hold", _answered(self._release))

    async def _hold(self, request: web.Request) -> web.Response:
        hold = await self._holdable.hold(request.match_info["table"], await _rollout(request))
        return web.json_response(hold.model_dump())

    async def _release(self, request: web.Request) -> web.Response:
        released = await self._holdable.release(request.match_info["table"], await _rollout(request))
        return web.json_response({"released": released})


def _answered(
    handler: Callable[[web.Request], Awaitable[web.Response]],
) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    async def answer(request: web.Request) -> web.StreamResponse:
        try:
            return await handler(request)
        except Retryable as error:
            raise web.HTTPServiceUnavailable(text=f"{error}\n") from None
        except Blocked as error:
            raise web.HTTPConflict(text=f"{error}\n") from None
        except BlockhouseError as error:
            raise web.HTTPInternalServerError(text=f"{error}\n") from None

    return answer


async def _rollout(request: web.Request) -> str:
    if "." not in request.match_info["table"]:
        raise web.HTTPBadRequest(text="name the table as database.table\n")
    try:
        rollout = (await request.json())["rollout"]
    except (json.JSONDecodeError, TypeError, KeyError):
        rollout = None
    if not isinstance(rollout, str) or not 0 < len(rollout) <= 200:
        raise web.HTTPBadRequest(text='give a JSON object such as {"rollout": "events-7"}\n')
    return rollout
