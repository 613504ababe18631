"""What is read from an API server's audit log: who wrote, who was refused, how often was asked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from e2e.cluster.audit import AuditLog


def event(user: str, verb: str, resource: str, *, code: int = 200, subresource: str = "") -> str:
    target: dict[str, Any] = {"resource": resource, "namespace": "ns", "name": "x"}
    if subresource:
        target["subresource"] = subresource
    return json.dumps(
        {
            "user": {"username": user},
            "verb": verb,
            "requestURI": "/x",
            "objectRef": target,
            "responseStatus": {"code": code},
            "requestReceivedTimestamp": "2026-01-01T00:00:00.000000Z",
        }
    )


def log(tmp_path: Path, *lines: str, end: str = "\n") -> AuditLog:
    (tmp_path / "audit.log").write_text("\n".join(lines) + end)
    return AuditLog(tmp_path / "audit.log")


def test_writes_are_distinguished_from_reads_and_from_renewals_of_leases(tmp_path: Path) -> None:
    found = log(
        tmp_path,
        event("op", "list", "pods"),
        event("op", "update", "leases"),
        event("op", "patch", "blockaggregators", subresource="status"),
        event("other", "create", "pods"),
    )
    assert [request.resource for request in found.writes("op")] == ["blockaggregators/status"]
    assert [request.resource for request in found.writes("op", leases=True)] == ["leases", "blockaggregators/status"]
    assert found.counts("op")["list pods"] == 1


def test_refusals_are_those_of_the_user(tmp_path: Path) -> None:
    found = log(tmp_path, event("op", "list", "secrets", code=403), event("other", "list", "secrets", code=403))
    assert len(found.refused("op")) == 1


def test_a_mark_hides_what_was_before(tmp_path: Path) -> None:
    found = log(tmp_path, event("op", "create", "pods"))
    mark = found.mark()
    assert found.writes("op", since=mark) == []
    with found.path.open("a") as file:
        file.write(event("op", "delete", "pods") + "\n")
    assert [request.verb for request in found.writes("op", since=mark)] == ["delete"]


def test_a_line_that_is_being_written_is_left_for_later(tmp_path: Path) -> None:
    found = log(tmp_path, event("op", "create", "pods"), event("op", "delete", "pods")[:50], end="")
    assert [request.verb for request in found.requests("op")] == ["create"]
