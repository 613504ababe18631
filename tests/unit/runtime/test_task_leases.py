"""A worker that hangs must not keep its stream, and an error of the driver's own code is not one of Spark's."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest
from structlog.testing import capture_logs

from blockhouse.errors import Retryable
from blockhouse.gate.client import GateAddress
from blockhouse_aggregator.runtime.stream import task_leases as leases
from blockhouse_aggregator.runtime.stream.owner import StreamOwner
from blockhouse_aggregator.runtime.stream.reporting import Counters
from blockhouse_aggregator.runtime.stream.task_leases import Leases
from blockhouse_aggregator.spark.task import LeaseFigures, LeaseSpec
from tests.unit.runtime.configs import CONFIG, STREAM


class HungApplication:
    """Its jobs end only when they are cancelled."""

    slots = 1

    def __init__(self) -> None:
        self.running = threading.Event()
        self.cancelled = threading.Event()

    def run_lease(self, spec: LeaseSpec) -> LeaseFigures:
        self.running.set()
        assert self.cancelled.wait(10)
        raise RuntimeError("Exception: job cancelled")

    def cancel(self, spec: LeaseSpec) -> None:
        self.cancelled.set()


async def test_a_worker_that_never_calls_is_cancelled_and_its_slot_is_free_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(leases, "START_TIMEOUT", 0.05)
    monkeypatch.setattr(leases, "CANCEL_TIMEOUT", 0.05)
    application = HungApplication()
    owner = SimpleNamespace(stream=STREAM, epoch=1, closed=asyncio.Event(), draining=asyncio.Event())
    owner.report = SimpleNamespace(alarm=lambda *_: None, counters=Counters())
    owner.task = SimpleNamespace(failed=lambda _: None)
    found = Leases(CONFIG, application, on_dead=owner.closed.set, on_broken=lambda _: pytest.fail("one is chance"))
    found.open(GateAddress("127.0.0.1", 1, b"key"))

    await asyncio.wait_for(found.serve(cast("StreamOwner", cast("Any", owner))), 5)

    assert application.running.is_set()
    assert application.cancelled.is_set()


async def test_an_error_while_a_hung_job_is_cancelled_is_no_failure_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leases, "START_TIMEOUT", 0.05)
    monkeypatch.setattr(leases, "CANCEL_TIMEOUT", 0.05)
    defect = KeyError("ours")
    failed: list[BaseException] = []

    class Defective(HungApplication):
        def cancel(self, spec: LeaseSpec) -> None:
            super().cancel(spec)
            raise defect

    owner = SimpleNamespace(stream=STREAM, epoch=1, closed=asyncio.Event(), draining=asyncio.Event())
    owner.report = SimpleNamespace(alarm=lambda *_: None, counters=Counters())
    owner.task = SimpleNamespace(failed=lambda _: None)
    owner.failed = failed.append
    found = Leases(CONFIG, Defective(), on_dead=owner.closed.set, on_broken=lambda _: pytest.fail("one is chance"))
    found.open(GateAddress("127.0.0.1", 1, b"key"))

    with capture_logs() as logs:
        await asyncio.wait_for(found.serve(cast("StreamOwner", cast("Any", owner))), 5)

    assert failed == [defect]
    assert "lease.failed" in [entry["event"] for entry in logs], "the job itself failed, too: it was cancelled"


class OneLease:
    """A job that ends when it is let go; its task calls back at once."""

    slots = 1

    def __init__(self) -> None:
        self.running, self.over = threading.Event(), threading.Event()
        self.jobs = 0

    def run_lease(self, spec: LeaseSpec) -> LeaseFigures:
        self.jobs += 1
        self.running.set()
        assert self.over.wait(10)
        return LeaseFigures(str(spec.stream))

    def cancel(self, spec: LeaseSpec) -> None:
        self.over.set()


class Talk:
    """In place of `Conversation`: raises, and lets the job end."""

    touched = 0.0
    raises: Exception
    application: OneLease

    def __init__(self, *_: Any) -> None: ...

    async def run(self) -> None:
        self.application.over.set()
        raise self.raises


async def served(monkeypatch: pytest.MonkeyPatch, error: Exception) -> tuple[list[BaseException], int, list[str]]:
    """What the owner received after a conversation raised this, how many jobs ran, and the events logged."""
    application = OneLease()
    Talk.raises, Talk.application = error, application
    monkeypatch.setattr(leases, "Conversation", Talk)
    failed: list[BaseException] = []
    owner = SimpleNamespace(stream=STREAM, epoch=1, closed=asyncio.Event(), draining=asyncio.Event())
    owner.failed = failed.append
    found = Leases(
        CONFIG,
        application,
        on_dead=lambda: pytest.fail("Spark is alive"),
        on_broken=pytest.fail,
    )
    found.open(GateAddress("127.0.0.1", 1, b"key"))
    session = SimpleNamespace(
        hello=SimpleNamespace(lease=1, work=str(STREAM), epoch=1), gone=SimpleNamespace(wait=lambda: asyncio.sleep(0))
    )
    with capture_logs() as logs:
        serving = asyncio.ensure_future(found.serve(cast("StreamOwner", cast("Any", owner))))
        await asyncio.to_thread(application.running.wait, 5)
        await found.accept(cast("Any", session))
        while not any(entry["event"] == "lease.over" for entry in logs):
            await asyncio.sleep(0.001)
        owner.closed.set()
        await asyncio.wait_for(serving, 5)
    return failed, application.jobs, [entry["event"] for entry in logs]


async def test_an_error_of_the_drivers_own_code_is_no_failed_lease(monkeypatch: pytest.MonkeyPatch) -> None:
    defect = KeyError("ours")

    failed, jobs, events = await served(monkeypatch, defect)

    assert failed == [defect]
    assert jobs == 1, "its slot was held until the job was over"
    assert "lease.failed" not in events


async def test_a_server_that_is_unavailable_interrupts_a_lease_and_is_no_defect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    failed, _, events = await served(monkeypatch, Retryable("zookeeper: unavailable"))

    assert failed == []
    assert "lease.interrupted" in events
