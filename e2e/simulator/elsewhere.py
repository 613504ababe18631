"""Pods whose program is a real one, or played by another simulator: at another address than theirs."""

from __future__ import annotations

from aiohttp import ClientError, ClientSession, web

_HEADERS = ("Authorization", "Content-Type", "If-None-Match")


async def forwarded(request: web.Request, url: str) -> web.Response:
    """What another program answers; one that does not listen hangs up, as it would by itself."""
    headers = {name: value for name, value in request.headers.items() if name in _HEADERS}
    whole = f"{url}?{request.query_string}" if request.query_string else url
    body = await request.read()
    try:
        async with (
            ClientSession() as session,
            session.request(request.method, whole, headers=headers, data=body or None) as answer,
        ):
            tag = {"ETag": answer.headers["ETag"]} if "ETag" in answer.headers else {}
            content = await answer.read()
            return web.Response(status=answer.status, body=content, headers=tag, content_type=answer.content_type)
    except ClientError:
        if request.transport is not None:
            request.transport.abort()
        raise web.HTTPServiceUnavailable from None
