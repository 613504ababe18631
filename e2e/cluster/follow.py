"""What changes in a cluster, for programs that stand beside it and have to outlive its API server.

A connection that breaks, or an answer that is none, is followed by a new list: what went meanwhile is reported as
deleted. Only what the API server does not do is waited for; a defect of ours is raised where it is.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from threading import Event
from typing import Any, TypeVar

import structlog
import urllib3
from kubernetes import client, watch
from tenacity import Retrying, retry_if_exception, wait_fixed

log = structlog.get_logger(__name__)

Json = dict[str, Any]
Answer = TypeVar("Answer")

SERVER_SECONDS = 240
"""After which the API server ends a watch by itself."""
REQUEST_SECONDS = (5, 300)
"""To connect, and between two pieces of an answer: a frozen API server answers nothing and closes nothing."""
PAUSE_SECONDS = 0.5
_GONE = 410
_TOO_MANY = 429
_OWN_FAULT = 500


def follow(listing: Any, *, ended: Event | None = None, **arguments: Any) -> Iterator[tuple[str, Json]]:
    """ADDED, MODIFIED or DELETED and the object, in the order in which it happened, until `ended`.

    `listing` is a list function of the Kubernetes client. Of a kind that is not defined yet there is nothing.
    """
    over, known, broken = ended or Event(), _Known(), False
    while not over.is_set():
        try:
            found = json.loads(
                listing(_preload_content=False, _request_timeout=REQUEST_SECONDS, **arguments).data  # not as models
            )
            broken = False
            yield from known.listed(found["items"])
            changes = watch.Watch().stream(  # type: ignore[no-untyped-call]
                listing,
                resource_version=found["metadata"]["resourceVersion"],
                timeout_seconds=SERVER_SECONDS,
                _request_timeout=REQUEST_SECONDS,
                **arguments,
            )
            for change in changes:
                if change["type"] in ("ADDED", "MODIFIED", "DELETED"):
                    yield change["type"], known.changed(change["type"], change["raw_object"])
        except (client.ApiException, *NO_ANSWER) as error:
            if not broken:
                log.warning("follow.broken", error=str(error).splitlines()[0] if str(error) else type(error).__name__)
            broken = True
            over.wait(PAUSE_SECONDS)


def patiently(ask: Callable[[], Answer]) -> Answer:
    """The API server's answer, whenever it gives one, as a kubelet asks. Raises ApiException for what it refuses."""
    return Retrying(retry=retry_if_exception(unavailable), wait=wait_fixed(PAUSE_SECONDS), reraise=True)(ask)


def unavailable(error: BaseException) -> bool:
    """The API server did not answer, or not now."""
    if isinstance(error, client.ApiException):
        return error.status in (0, _GONE, _TOO_MANY) or error.status >= _OWN_FAULT
    return isinstance(error, NO_ANSWER)


NO_ANSWER = (urllib3.exceptions.HTTPError, OSError, json.JSONDecodeError)
"""What the client raises when the connection breaks, also in the middle of a line."""


class _Known:
    """The objects that were reported and not deleted, by uid."""

    def __init__(self) -> None:
        self._objects: dict[str, Json] = {}

    def listed(self, items: list[Json]) -> Iterator[tuple[str, Json]]:
        """What has to be reported for this list to be known; last what has gone, which may be replaced already."""
        present = {item["metadata"]["uid"]: item for item in items}
        for uid, item in present.items():
            sort = "MODIFIED" if uid in self._objects else "ADDED"
            self._objects[uid] = item
            yield sort, item
        for uid in [uid for uid in self._objects if uid not in present]:
            yield "DELETED", self._objects.pop(uid)

    def changed(self, sort: str, item: Json) -> Json:
        uid = item["metadata"]["uid"]
        if sort == "DELETED":
            self._objects.pop(uid, None)
        else:
            self._objects[uid] = item
        return item
