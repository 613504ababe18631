"""A page for people, over the JSON that programs read: one file, without a build step or anything from elsewhere.

It holds no data, so it is served without a token; what it shows it asks for with the person's token, as anybody does.
It must never change anything.
"""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files

from aiohttp import web

PATH = "/"
_INLINE = re.compile(r"<(script|style)>(.*?)</\1>", re.DOTALL)


def page_route() -> web.RouteDef:
    """`GET /`."""
    return web.get(PATH, _serve)


async def _serve(_: web.Request) -> web.Response:
    text, policy = _page()
    headers = {
        "Content-Security-Policy": policy,
        "X-Content-Type-Options": "nosniff",
        "Referrer-Policy": "no-referrer",
        "Cache-Control": "no-cache",
    }
    return web.Response(text=text, content_type="text/html", charset="utf-8", headers=headers)


@cache
def _page() -> tuple[str, str]:
    """The page and its policy: nothing but its own script and style, by their hashes, and requests to where it is
    from."""
    text = files(__name__).joinpath("page.html").read_text(encoding="utf-8")
    hashes = {kind: _hash(content) for kind, content in _INLINE.findall(text)}
    policy = (
        f"default-src 'none'; script-src '{hashes['script']}'; style-src '{hashes['style']}'; connect-src 'self';"
        " base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    )
    return text, policy


def _hash(content: str) -> str:
    return "sha256-" + base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
