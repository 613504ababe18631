"""What an error of ours is over HTTP: 503 for Retryable, 409 for Blocked, 422 for Permanent, each with its text."""

from __future__ import annotations

from aiohttp import web

from blockhouse.errors import Blocked, Permanent, Retryable
from blockhouse.serving import Handler


def answered(handler: Handler) -> Handler:
    """The handler, whose errors are answers."""

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
