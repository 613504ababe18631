"""The requests that the API server recorded: the judge of who wrote what, who was refused, and how much was asked."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

WRITES = frozenset({"create", "update", "patch", "delete", "deletecollection"})

POLICY = """\
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived, ResponseStarted]
rules:
- {level: Metadata}
"""


@dataclass(frozen=True)
class Request:
    """One request that was answered. `resource` is like "pods" or "blockaggregators/status"."""

    user: str
    verb: str
    resource: str
    namespace: str
    name: str
    code: int
    at: str
    """When it was received, RFC 3339 with microseconds: strings compare as times do."""
    agent: str = ""

    @property
    def writes(self) -> bool:
        return self.verb in WRITES

    def __str__(self) -> str:
        return f"{self.at} {self.user} {self.verb} {self.resource} {self.namespace}/{self.name}: {self.code}"

    @classmethod
    def parse(cls, line: str) -> Request:
        event: dict[str, Any] = json.loads(line)
        target = event.get("objectRef", {})
        subresource = target.get("subresource")
        return cls(
            user=event["user"].get("username", ""),
            verb=event["verb"],
            resource=target.get("resource", event["requestURI"]) + (f"/{subresource}" if subresource else ""),
            namespace=target.get("namespace", ""),
            name=target.get("name", ""),
            code=event.get("responseStatus", {}).get("code", 0),
            at=event["requestReceivedTimestamp"],
            agent=event.get("userAgent", ""),
        )


class AuditLog:
    """Reads the file of `--audit-log-path`. `mark()` gives a place in it to read from later."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def mark(self) -> int:
        return self.path.stat().st_size if self.path.exists() else 0

    def requests(self, user: str | None = None, *, since: int = 0) -> Iterator[Request]:
        """Requests from the mark `since` on, of `user` when it is given, in the order in which they were answered.

        A line that is still being written is left for the next call.
        """
        with self.path.open("rb") as log:
            log.seek(since)
            for line in log:
                if not line.endswith(b"\n"):
                    return
                request = Request.parse(line.decode())
                if user is None or request.user == user:
                    yield request

    def refused(self, user: str, *, since: int = 0) -> list[Request]:
        """What `user` may not do but tried to."""
        return [request for request in self.requests(user, since=since) if request.code in (401, 403)]

    def writes(self, user: str, *, since: int = 0, leases: bool = False) -> list[Request]:
        """What `user` changed or tried to change; renewals of leases only when asked for."""
        return [
            request
            for request in self.requests(user, since=since)
            if request.writes and (leases or request.resource != "leases")
        ]

    def counts(self, user: str, *, since: int = 0) -> Counter[str]:
        """How often `user` asked for what, e.g. {"list pods": 3}."""
        return Counter(f"{request.verb} {request.resource}" for request in self.requests(user, since=since))
