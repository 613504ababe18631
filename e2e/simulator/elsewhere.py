"""Pods whose program is a real one, at another address than theirs."""

from __future__ import annotations

from aiohttp import ClientError, ClientSession, web


async def forwarded(request: web.Request, url: str) -> web.Response:
    """What a real program answers; one that does not listen hangs up, as it would by itself."""
    headers = {name: value for name, value in request.headers.items() if name == "Authorization"}
    try:
        async with ClientSession() as session, session.request(request.method, url, headers=headers) as answer:
            return web.Response(status=answer.status, body=await answer.read(), content_type=answer.content_type)
    except ClientError:
        if request.transport is not None:
            request.transport.abort()
        raise web.HTTPServiceUnavailable from None
