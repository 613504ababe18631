"""A worker that hangs must not keep its stream: silence ends the conversation, and the job is cancelled."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from blockhouse_aggregator.gate.client import GateAddress
from blockhouse_aggregator.runtime import leases
from blockhouse_aggregator.runtime.leases import Leases
from blockhouse_aggregator.runtime.owner import StreamOwner
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
    found = Leases(CONFIG, application, on_dead=owner.closed.set)
    found.address = GateAddress("127.0.0.1", 1, b"key")

    await asyncio.wait_for(found.serve(cast("StreamOwner", cast("Any", owner))), 5)

    assert application.running.is_set()
    assert application.cancelled.is_set()
