"""Watches of shards and of all children, which fill the stores and take note of what is due.

kopf cannot select by label on the server, so it would carry every pod of a cluster, and keeps no objects. Each watch
ends after a few minutes by itself and continues, so one that died silently is noticed by its age.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from typing import Any

import aiohttp
import structlog
from kubernetes.aio.client import ApiClient

from blockhouse.http_errors import no_answer
from blockhouse_operator.adapters.kinds import Object
from blockhouse_operator.adapters.store import Place, Store
from blockhouse_operator.api.labels import selector

log = structlog.get_logger(__name__)

SERVER_SECONDS = 240
SILENCE_SECONDS = 300.0
ACCEPTED_SECONDS = 30.0
"""Until a watch is accepted. A server that is frozen keeps the connection open, on which nothing ever comes."""
LIST_SECONDS = 60.0
"""For one page of a list."""
RETRY_SECONDS, LONGEST_RETRY_SECONDS = 2.0, 60.0
PAGE = 250

Observed = Callable[[str, Object], None]
"""Called with the sort of the event (ADDED, MODIFIED, DELETED, or "" for what a list showed) and the object."""


async def _at_once() -> bool:
    return False


class Watch:
    """The watch of one store. Before it asks it awaits `readable`, which returns whether it had to wait."""

    def __init__(self, api: ApiClient, store: Store, readable: Callable[[], Awaitable[bool]] = _at_once) -> None:
        self.store = store
        self._readable = readable
        self._api = api
        self._path = store.kind.path(store.namespace)
        self._selector = {"labelSelector": selector(store.selector)} if store.selector else {}

    async def run(self, observed: Observed) -> None:
        """Call `observed` for every object that is there, changes or goes, once the store has it; indefinitely. It must
        only take note."""
        version, failures = "", 0
        while True:
            if await self._readable():
                self.store.heard()
                failures = 0
            try:
                if not version:
                    version = await self._list(observed)
                version = await self._follow(version, observed)
                failures = 0
            except (aiohttp.ClientError, TimeoutError, OSError, ValueError, KeyError) as error:
                log.warning("watch_broken", kind=self.store.kind.name, error=self._why(error))
                version, self.store.complete = "", False
                # A watch that is refused, for want of a right, must not list thousands of objects every two seconds.
                await asyncio.sleep(min(LONGEST_RETRY_SECONDS, RETRY_SECONDS * 2.0**failures))
                failures = min(failures + 1, 8)

    def _why(self, error: Exception) -> str:
        if isinstance(error, aiohttp.ClientConnectorError):
            return f"{self._api.configuration.host}: {no_answer(error, LIST_SECONDS)}"
        return f"{type(error).__name__}: {error}"

    async def _list(self, observed: Observed) -> str:
        query = {**self._selector, "limit": str(PAGE)}
        places: set[Place] = set()
        while True:
            async with asyncio.timeout(LIST_SECONDS):
                answer = await self._ask(query)
                page = json.loads(await answer.read())
            if answer.status != 200:
                raise ValueError(f"list refused: {answer.status} {page.get('message')}")
            if not places:
                self.store.lists(str(page["metadata"]["resourceVersion"]))
            for item in page["items"]:
                await asyncio.sleep(0)  # the lease has to be renewed while thousands are taken in
                places.add((item["metadata"].get("namespace", ""), item["metadata"]["name"]))
                self.store.reported(item)
                observed("", {"apiVersion": self.store.kind.api_version, "kind": self.store.kind.name, **item})
            self.store.heard()
            more = page["metadata"].get("continue")
            if not more:
                version = str(page["metadata"]["resourceVersion"])
                self.store.listed(places, version)
                return version
            query["continue"] = more

    async def _follow(self, version: str, observed: Observed) -> str:
        """Events from `version` on until the server ends the watch; returns where to continue, "" for a new list."""
        query = {
            **self._selector,
            "watch": "true",
            "allowWatchBookmarks": "true",
            "resourceVersion": version,
            "timeoutSeconds": str(SERVER_SECONDS),
        }
        async with asyncio.timeout(ACCEPTED_SECONDS):
            answer = await self._ask(query)
        if answer.status != 200:
            raise ValueError(f"watch refused: {answer.status}")
        self.store.heard()
        stream = answer.response.content
        while True:
            async with asyncio.timeout(SILENCE_SECONDS):
                line = await stream.readline()
            if not line:
                return version
            self.store.heard()
            event = json.loads(line)
            if event["type"] == "ERROR":
                self.store.complete = False
                return ""
            version = event["object"]["metadata"]["resourceVersion"]
            if event["type"] == "BOOKMARK":
                self.store.passed(version)
            else:
                self.store.reported(event["object"], gone=event["type"] == "DELETED")
                observed(event["type"], event["object"])

    async def _ask(self, query: dict[str, str]) -> Any:
        request = await self._api.param_serialize(
            "GET",
            self._path,
            query_params=list(query.items()),
            header_params={"Accept": "application/json"},
            auth_settings=["BearerToken"],
        )
        return await self._api.call_api(*request, _request_timeout=aiohttp.ClientTimeout(total=None, sock_connect=15))
