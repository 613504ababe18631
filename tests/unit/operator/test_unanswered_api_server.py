"""What the log has of an API server that does not answer an operator which leads or wants to: its address and why."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import AsyncIterator
from types import SimpleNamespace

import pytest
from kubernetes.aio.client import ApiClient, Configuration, V1Lease, V1LeaseSpec, V1ObjectMeta
from kubernetes.aio.client.exceptions import ApiException
from kubernetes.aio.leaderelection.leaderelection import LeaderElection
from kubernetes.aio.leaderelection.leaderelectionrecord import LeaderElectionRecord
from structlog.testing import capture_logs

from blockhouse_operator.adapters import watch as watches
from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.adapters.kinds import POD
from blockhouse_operator.adapters.lease import FencedLock, _config
from blockhouse_operator.adapters.store import Store
from blockhouse_operator.adapters.watch import Watch
from blockhouse_operator.api.labels import CHILD

NOW = "2026-01-02 03:04:05.678901"
RECORD = LeaderElectionRecord("me", "15", NOW, NOW)


@pytest.fixture
def address() -> str:
    """Where nothing listens."""
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        return f"https://127.0.0.1:{unused.getsockname()[1]}"


@pytest.fixture
async def api(address: str) -> AsyncIterator[ApiClient]:
    async with ApiClient(Configuration(host=address)) as found:
        yield found


@pytest.fixture
def lock(api: ApiClient) -> FencedLock:
    return FencedLock("blockhouse-operator", "data", "me", api, Fence(15.0))


async def test_the_election_names_the_address_and_the_reason_alone(
    lock: FencedLock, address: str, caplog: pytest.LogCaptureFixture
) -> None:
    async def started() -> None: ...

    with caplog.at_level(logging.ERROR):
        assert not await LeaderElection(_config(lock, started)).try_acquire_or_renew()

    assert caplog.messages == [f"Error retrieving resource lock blockhouse-operator as {address}: connection refused"]


async def test_so_do_renewals_and_the_release(lock: FencedLock, address: str) -> None:
    lock.lease_reference = V1Lease(metadata=V1ObjectMeta(name=lock.name), spec=V1LeaseSpec(holder_identity="me"))
    with capture_logs() as logged:
        assert not await lock.create(lock.name, lock.namespace, RECORD)
        assert not await lock.update(lock.name, lock.namespace, RECORD)

    refused = {"event": "lease_not_renewed", "error": f"{address}: connection refused", "log_level": "warning"}
    assert logged == [refused, refused]


async def test_a_release_that_is_refused_is_logged_with_the_answer_of_the_server(
    lock: FencedLock, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def get(*_: object) -> tuple[bool, LeaderElectionRecord]:
        return True, RECORD

    async def refused(*_: object) -> None:
        raise ApiException(status=403, reason="Forbidden")

    lock.lease_reference = V1Lease(metadata=V1ObjectMeta(name=lock.name), spec=V1LeaseSpec(holder_identity="me"))
    monkeypatch.setattr(lock, "get", get)
    monkeypatch.setattr(lock.api_instance, "replace_namespaced_lease", refused)
    lock._fence.renewed(lock._fence.now())
    with capture_logs() as logged:
        await lock.release()

    assert logged == [{"event": "lease_not_released", "error": "403 Forbidden", "log_level": "warning"}]


class Enough(Exception):
    pass


async def test_so_does_a_watch(api: ApiClient, address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def stop(seconds: float) -> None:
        raise Enough

    monkeypatch.setattr(watches, "asyncio", SimpleNamespace(timeout=asyncio.timeout, sleep=stop))
    with capture_logs() as logged, pytest.raises(Enough):
        await Watch(api, Store(POD, None, CHILD, lambda: 0.0)).run(lambda sort, found: None)

    refused = f"{address}: connection refused"
    assert logged == [{"event": "watch_broken", "kind": "Pod", "error": refused, "log_level": "warning"}]
