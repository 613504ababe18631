"""Watches of children by label, so that the server sends only what is ours.

kopf cannot select by label on the server: it would carry every pod of a cluster. Each watch ends after a few minutes by
itself and starts again with a list, so one that died silently is noticed by its age.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any

import aiohttp
import structlog
from kubernetes.aio.client import ApiClient

from blockhouse_operator.adapters.kinds import Kind, Object

log = structlog.get_logger(__name__)

SERVER_SECONDS = 240
SILENCE_SECONDS = 300.0
RETRY_SECONDS = 2.0
PAGE = 250

Seen = Callable[[Object], None]


class Watch:
    """One kind of children in one namespace or in all. `alive_at` is when the server was last heard, by `clock`."""

    def __init__(
        self, api: ApiClient, kind: Kind, namespace: str | None, selector: str, clock: Callable[[], float]
    ) -> None:
        self.kind = kind
        self._api = api
        self._path = kind.path(namespace)
        self._selector = selector
        self._clock = clock
        self.alive_at = clock()

    async def run(self, seen: Seen) -> None:
        """Call `seen` for every object that is there, changes or goes; indefinitely. It must only take note."""
        version = ""
        while True:
            try:
                if not version:
                    version = await self._list(seen)
                version = await self._follow(version, seen)
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as error:
                log.warning("watch_broken", kind=self.kind.name, error=f"{type(error).__name__}: {error}")
                version = ""
                await asyncio.sleep(RETRY_SECONDS)

    async def _list(self, seen: Seen) -> str:
        query = {"labelSelector": self._selector, "limit": str(PAGE)}
        while True:
            async with asyncio.timeout(60):
                answer = await self._ask(query)
                page = json.loads(await answer.read())
            if answer.status != 200:
                raise ValueError(f"list refused: {answer.status} {page.get('message')}")
            for item in page["items"]:
                seen({"apiVersion": self.kind.api_version, "kind": self.kind.name, **item})
            self.alive_at = self._clock()
            more = page["metadata"].get("continue")
            if not more:
                return str(page["metadata"]["resourceVersion"])
            query["continue"] = more

    async def _follow(self, version: str, seen: Seen) -> str:
        """Events from `version` on until the server ends the watch; returns where to continue, "" for a new list."""
        query = {
            "labelSelector": self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(SERVER_SECONDS),
        }
        answer = await self._ask(query)
        if answer.status != 200:
            raise ValueError(f"watch refused: {answer.status}")
        self.alive_at = self._clock()
        stream = answer.response.content
        while True:
            async with asyncio.timeout(SILENCE_SECONDS):
                line = await stream.readline()
            if not line:
                return version
            self.alive_at = self._clock()
            event = json.loads(line)
            if event["type"] == "ERROR":
                return ""
            version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] != "BOOKMARK":
                seen(event["object"])

    async def _ask(self, query: dict[str, str]) -> Any:
        request = await self._api.param_serialize(
            "GET",
            self._path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        return await self._api.call_api(*request, _request_timeout=aiohttp.ClientTimeout(total=None, sock_connect=15))
