"""What processes cost: CPU and memory of a whole session, so that workers which leave their process group count too.

A session is named by its leader's pid, as `e2e.stack` starts its servers. Reads /proc only: must never signal anything.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

import psutil

from e2e.stack.periodic import Periodic
from e2e.stack.process import session_members

_TICK: int = os.sysconf("SC_CLK_TCK")
_PAGE: int = os.sysconf("SC_PAGE_SIZE")


@dataclass(frozen=True, slots=True)
class Memory:
    """Bytes of all processes of a session. `rss` counts a shared page once per process, `pss` once in all."""

    rss: int = 0
    pss: int = 0


def cpu_seconds(leader: int) -> float:
    """CPU time, user and system, that the session's living processes and their reaped children have used so far.

    A child that outlives its parent and then dies is lost: none of our servers has such children.
    """
    return sum(_cpu_ticks(pid) for pid in session_members(leader)) / _TICK


def machine_seconds() -> float:
    """CPU time that all processes of the machine have used so far."""
    times = psutil.cpu_times()
    return float(sum(times) - times.idle - times.iowait - times.guest - times.guest_nice)


def memory(leader: int) -> Memory:
    """What the session occupies now."""
    pids = session_members(leader)
    return Memory(sum(map(_rss, pids)), sum(map(_pss, pids)))


def pss_by_program(leader: int) -> dict[str, int]:
    """PSS in bytes of the session's processes, summed by what they run: "driver", "java", "workers"."""
    sums = {"driver": 0, "java": 0, "workers": 0}
    for pid in session_members(leader):
        command = _read(f"/proc/{pid}/cmdline")
        kind = "java" if "java\0" in command else "workers" if "pyspark.worker" in command else "driver"
        sums[kind] += _pss(pid)
    return sums


class MemoryPeak(Periodic):
    """Samples a session's memory from entering to leaving the context; `peak` has the largest sum of each kind."""

    def __init__(self, leader: int, *, interval: float = 0.5) -> None:
        super().__init__(self._sample, interval, name="memory-peak")
        self.peak = Memory()
        self._leader = leader

    def __enter__(self) -> Self:
        self._sample()
        return super().__enter__()

    def _sample(self) -> None:
        now = memory(self._leader)
        self.peak = Memory(max(self.peak.rss, now.rss), max(self.peak.pss, now.pss))


def _cpu_ticks(pid: int) -> int:
    # After the name in parentheses, which may hold anything: utime, stime, cutime, cstime are fields 12 to 15.
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return sum(map(int, fields[11:15]))


def _rss(pid: int) -> int:
    fields = _read(f"/proc/{pid}/statm").split()
    return int(fields[1]) * _PAGE if fields else 0


def _pss(pid: int) -> int:
    return sum(int(line.split()[1]) << 10 for line in _lines(f"/proc/{pid}/smaps_rollup") if line.startswith("Pss:"))


def _lines(path: str) -> Iterator[str]:
    yield from _read(path).splitlines()


def _read(path: str) -> str:
    """Empty for a process that is gone."""
    try:
        return Path(path).read_text(errors="replace")
    except OSError:
        return ""
