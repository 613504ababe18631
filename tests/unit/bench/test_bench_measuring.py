"""Costs of real processes, and when a message counts as stored."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator

import pytest

from bench.processes import MemoryPeak, cpu_seconds, memory
from bench.standing import Acknowledged
from tests.contract_values import block, stream

MIB = 1 << 20
CHILD_BURNS = "import time\nwhile time.process_time() < 0.3: pass"
PARENT = f"""
import subprocess, sys
held = bytearray({64 * MIB})
subprocess.run([sys.executable, "-c", {CHILD_BURNS!r}])
print("done", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def parent() -> Iterator[subprocess.Popen[str]]:
    """A session whose leader holds 64 MiB and has had a child that used 0.3 seconds of CPU and is gone."""
    pipe = subprocess.PIPE
    command = [sys.executable, "-c", PARENT]
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True, start_new_session=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "done\n"
        yield process
        process.kill()


def test_the_cpu_of_a_dead_child_stays_with_its_session(parent: subprocess.Popen[str]) -> None:
    assert 0.3 <= cpu_seconds(parent.pid) < 10


def test_memory_is_what_the_sessions_processes_hold(parent: subprocess.Popen[str]) -> None:
    with MemoryPeak(parent.pid, interval=0.01) as sampled:
        now = memory(parent.pid)
    assert now.rss >= now.pss > 64 * MIB
    assert sampled.peak.rss >= now.rss


def test_a_session_that_is_gone_costs_nothing(parent: subprocess.Popen[str]) -> None:
    parent.kill()
    parent.wait()
    assert (cpu_seconds(parent.pid), memory(parent.pid).rss) == (0, 0)


def test_a_message_is_late_until_its_offset_is_acknowledged() -> None:
    # given three messages sent long ago
    acknowledged = Acknowledged()
    acknowledged.sent[1] = [(10, 0), (11, 0), (12, 0)]
    name = "a/events/1"
    # when the block of the third is still in flight
    acknowledged.look([stream(name, position=13, in_flight=(block(12),))])
    assert (len(acknowledged.latencies), acknowledged.complete) == (2, False)
    # then the next look finds only that one
    acknowledged.look([stream(name, position=13)])
    assert (len(acknowledged.latencies), acknowledged.complete) == (3, True)
    assert min(acknowledged.latencies) > 1e9, "seconds since 1970"
