"""Programs beside a cluster outlive its API server, notice what went meanwhile, and hide no defect of their own."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3
from kubernetes import client

from e2e.cluster import follow as module
from e2e.cluster.follow import follow, patiently
from e2e.scenarios.pod_history import PodHistory
from e2e.simulator.server import SimulatorServer
from e2e.stack.periodic import Periodic
from e2e.stack.ports import Ports


def item(name: str, uid: str = "") -> dict[str, Any]:
    return {"metadata": {"name": name, "uid": uid or name, "resourceVersion": "1"}}


class Answer:
    def __init__(self, *lines: object) -> None:
        self.data = json.dumps(lines[0]).encode() if lines else b""
        self._lines = lines

    def stream(self, **_: object) -> Iterator[bytes]:
        for line in self._lines:
            if isinstance(line, Exception):
                raise line
            yield json.dumps(line).encode() + b"\n"

    def close(self) -> None: ...

    def release_conn(self) -> None: ...


class Server:
    """Answers to lists and watches, in the order in which they are asked for; an Exception is raised."""

    def __init__(self, *answers: Answer | Exception) -> None:
        self._answers = iter(answers)

    def listing(self, **_: object) -> Answer:
        answer = next(self._answers)
        if isinstance(answer, Exception):
            raise answer
        return answer


def listed(*items: dict[str, Any]) -> Answer:
    return Answer({"metadata": {"resourceVersion": "1"}, "items": list(items)})


REFUSED = urllib3.exceptions.MaxRetryError(urllib3.HTTPConnectionPool("localhost"), "/", Exception("refused"))


@pytest.fixture(autouse=True)
def without_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "PAUSE_SECONDS", 0.0)


def seen(server: Server, count: int) -> list[tuple[str, str]]:
    changes = follow(server.listing)
    return [(sort, found["metadata"]["uid"]) for sort, found in (next(changes) for _ in range(count))]


def test_what_went_while_the_server_was_down_is_reported_after_what_came() -> None:
    cut = urllib3.exceptions.ProtocolError("connection broken")
    server = Server(
        listed(item("pod", "1")),
        Answer({"type": "ADDED", "object": item("other")}, cut),
        REFUSED,
        client.ApiException(status=503, reason="starting"),
        listed(item("pod", "2")),
    )
    assert seen(server, 5) == [
        ("ADDED", "1"),
        ("ADDED", "other"),
        ("ADDED", "2"),
        ("DELETED", "1"),
        ("DELETED", "other"),
    ]


def test_a_history_that_is_too_old_begins_with_a_new_list() -> None:
    gone = {"type": "ERROR", "object": {"code": 410, "reason": "Expired", "message": "too old"}}
    server = Server(listed(item("a")), Answer(gone), listed(item("b")))
    assert seen(server, 3) == [("ADDED", "a"), ("ADDED", "b"), ("DELETED", "a")]


def test_a_defect_is_raised() -> None:
    with pytest.raises(KeyError):
        seen(Server(KeyError("labels")), 1)


def test_a_kubelet_asks_until_it_is_answered() -> None:
    server = Server(REFUSED, client.ApiException(status=500), listed())
    assert patiently(server.listing).data

    with pytest.raises(client.ApiException):
        patiently(Server(client.ApiException(status=404)).listing)


async def test_a_simulator_that_cannot_follow_the_pods_ends() -> None:
    ports = Ports()

    def breaks(_server: SimulatorServer, _loop: asyncio.AbstractEventLoop) -> None:
        raise KeyError("a label")

    def continues(_server: SimulatorServer, _loop: asyncio.AbstractEventLoop) -> None: ...

    with pytest.raises(KeyError, match="a label"):
        async with asyncio.timeout(10):
            await SimulatorServer(ports["simulator"]).run(continues, breaks)
    ports.release()


def test_what_is_done_periodically_fails_its_context_when_it_fails() -> None:
    def broken() -> None:
        raise KeyError("a look")

    periodic = Periodic(broken, 0.001, name="broken")
    with pytest.raises(KeyError, match="a look"), periodic:
        periodic.join(10)


def pod(replica: str, uid: str, *, ready: bool, ending: bool = False) -> dict[str, Any]:
    group = "ingest.blockhouse.dev"
    labels = {f"{group}/pipeline": "p", f"{group}/shard": "0", f"{group}/replica": replica}
    return {
        "metadata": {"uid": uid, "labels": labels, **({"deletionTimestamp": "now"} if ending else {})},
        "status": {"conditions": [{"type": "Ready", "status": str(ready)}]},
    }


def history(*changes: tuple[str, dict[str, Any]]) -> PodHistory:
    made = PodHistory(client.CoreV1Api(), "ns")
    for sort, found in changes:
        made.note(sort, found)
    return made


FIRST = [("ADDED", pod(name, name, ready=True)) for name in ("a", "b")]


def test_one_replica_after_the_other_is_one_at_a_time() -> None:
    made = history(
        *FIRST,
        ("MODIFIED", pod("a", "a", ready=True, ending=True)),
        ("DELETED", pod("a", "a", ready=True, ending=True)),
        ("ADDED", pod("a", "a2", ready=False)),
        ("MODIFIED", pod("a", "a2", ready=True)),
        ("DELETED", pod("b", "b", ready=True)),
        ("ADDED", pod("b", "b2", ready=True)),
    )
    assert {shard: len(down) for shard, down in made.most_down().items()} == {"p-0": 1}
    assert made.present() == {"a": "a2", "b": "b2"}


def test_a_replica_that_goes_before_another_one_is_ready_is_seen() -> None:
    made = history(
        *FIRST,
        ("DELETED", pod("a", "a", ready=True)),
        ("ADDED", pod("a", "a2", ready=False)),
        ("MODIFIED", pod("b", "b", ready=True, ending=True)),
    )
    assert made.most_down() == {"p-0": frozenset({"a", "b"})}


def test_pods_that_were_never_ready_are_not_down() -> None:
    assert history(("ADDED", pod("a", "1", ready=False)), ("ADDED", pod("b", "2", ready=False))).most_down() == {
        "p-0": frozenset()
    }
