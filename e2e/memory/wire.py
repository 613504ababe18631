"""What goes over the wire between a client and the API server in memory, and what the server keeps."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Place = tuple[str, str]
"""Namespace and name."""
APPLY = "application/apply-patch+yaml"


@dataclass(frozen=True, slots=True)
class Sent:
    """A request: `path` as the client gave it."""

    method: str
    path: str
    query: Mapping[str, str]
    body: Any = None
    content_type: str = ""

    @property
    def writes(self) -> bool:
        return self.method != "GET"

    @property
    def watches(self) -> bool:
        return "watch" in self.query


@dataclass
class Reply:
    """An answer as the client's: `content` is the stream of a watch."""

    status: int
    text: bytes = b""
    content: Any = None

    async def read(self) -> bytes:
        return self.text

    @property
    def response(self) -> Reply:
        return self


class Stream:
    """The lines of one watch; it ends with an empty one."""

    def __init__(self) -> None:
        self.lines: asyncio.Queue[bytes] = asyncio.Queue()

    async def readline(self) -> bytes:
        return await self.lines.get()


@dataclass
class Collection:
    """The objects of one kind, their text, and what happened to them."""

    group: str
    objects: dict[Place, dict[str, Any]] = field(default_factory=dict)
    texts: dict[Place, str] = field(default_factory=dict)
    log: list[tuple[int, str]] = field(default_factory=list)
    """Events by version."""
    streams: list[Stream] = field(default_factory=list)


class Refused(Exception):
    """`status` is the HTTP code."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
