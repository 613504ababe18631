"""Leases that fail in a row are an alarm of their stream, or the end of the process."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from blockhouse.gate.client import GateAddress
from blockhouse_aggregator.protocol.events import Alarm
from blockhouse_aggregator.runtime.stream import failed_leases, task_leases
from blockhouse_aggregator.runtime.stream.failed_leases import (
    ALARM_EVERY,
    LEASE_FAILING,
    MOST_UNSTARTED,
    UNSTARTED_FOR,
    FailedLeases,
)
from blockhouse_aggregator.runtime.stream.owner import StreamOwner
from blockhouse_aggregator.runtime.stream.reporting import Counters
from blockhouse_aggregator.runtime.stream.task_leases import Leases
from blockhouse_aggregator.spark.task import LeaseFigures, LeaseSpec
from tests.unit.runtime.configs import CONFIG, STREAM


def test_a_stream_whose_leases_fail_in_a_row_is_an_alarm_with_its_cause_and_one_success_ends_it() -> None:
    failures = FailedLeases()
    assert [failures.failed("a/t/0", "boom", 0) for _ in range(ALARM_EVERY - 1)] == [None] * (ALARM_EVERY - 1)
    alarm = failures.failed("a/t/0", "boom", 0)
    assert alarm is not None
    assert alarm.reason == LEASE_FAILING
    assert "5 leases in a row have failed" in alarm.message
    assert "boom" in alarm.message
    failures.succeeded("a/t/0")
    assert failures.failed("a/t/0", "boom", 0) is None


def test_leases_between_which_blocks_are_stored_do_not_fail_in_a_row() -> None:
    failures = FailedLeases()
    assert [failures.failed("a/t/0", "boom", blocks) for blocks in range(20)] == [None] * 20
    next_owners = [failures.failed("a/t/0", "boom", blocks) for blocks in range(1, 20)]
    assert next_owners == [None] * 19, "fewer blocks than the one before had stored"

    stuck = [failures.failed("a/t/0", "boom", 0) for _ in range(ALARM_EVERY)]
    assert [alarm is not None for alarm in stuck] == [False] * (ALARM_EVERY - 2) + [True, False]


def test_streams_are_counted_apart() -> None:
    failures = FailedLeases()
    assert [failures.failed(f"a/t/{n}", "boom", 0) for n in range(20)] == [None] * 20


def test_the_process_ends_only_when_no_task_starts_for_a_while() -> None:
    failures = FailedLeases()
    assert not any(failures.unstarted(0.1 * n) for n in range(100)), "many within seconds may be one cause that passes"
    assert failures.unstarted(UNSTARTED_FOR)
    failures.started()
    step = UNSTARTED_FOR / 2
    assert [failures.unstarted(100 + step * n) for n in range(MOST_UNSTARTED)] == [False] * (MOST_UNSTARTED - 1) + [
        True
    ]


class BrokenSpark:
    """Each job fails before its task exists, as when Spark's scratch folder is gone."""

    slots = 1

    def run_lease(self, spec: LeaseSpec) -> LeaseFigures:
        raise FileNotFoundError(2, "No such file or directory")

    def cancel(self, spec: LeaseSpec) -> None: ...


async def test_leases_whose_tasks_never_start_end_the_process_with_the_cause(monkeypatch: Any) -> None:
    monkeypatch.setattr(failed_leases, "UNSTARTED_FOR", 0.0)
    monkeypatch.setattr(task_leases, "PAUSE", 0.0)
    alarms: list[Alarm] = []
    causes: list[str] = []
    failures: list[str] = []
    owner = SimpleNamespace(stream=STREAM, epoch=1, closed=asyncio.Event(), draining=asyncio.Event())
    owner.report = SimpleNamespace(alarm=alarms.append, counters=Counters())
    owner.task = SimpleNamespace(failed=failures.append)

    def broken(cause: str) -> None:
        causes.append(cause)
        owner.closed.set()

    found = Leases(CONFIG, BrokenSpark(), on_dead=lambda: None, on_broken=broken)
    found.open(GateAddress("127.0.0.1", 1, b"key"))
    await asyncio.wait_for(found.serve(cast("StreamOwner", cast("Any", owner))), 20)
    assert len(causes) == 1
    assert "No such file or directory" in causes[0]
    assert set(failures) == {causes[0]}
    assert [alarm.reason for alarm in alarms] == [LEASE_FAILING] * (MOST_UNSTARTED // ALARM_EVERY)
