"""The wall clock of a single process, shifted while it runs, by libfaketime; the monotonic clock is left alone.

libfaketime is loaded into the processes that may be shifted and into no other: it costs them time. Its offset is in a
file that they read again every second.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock

import psutil
from confluent_kafka import KafkaException, Message, Producer

from e2e.stack.process import is_alive

CACHE_SECONDS = 1
PROBE_TOPIC = "wall-clock"
"""Its messages have the time at which the broker appended them."""
_LIBRARIES = "*/faketime/libfaketimeMT.so.1"
_LEFT_BEHIND = re.compile(r"(?:sem\.)?faketime_(?:sem|shm)_(\d+)")
_SHARED_MEMORY = Path("/dev/shm")


def library(folder: Path = Path("/usr/lib")) -> Path | None:
    """libfaketime for programs with threads, of the Debian package; None when it is not installed."""
    return next(iter(sorted(folder.glob(_LIBRARIES))), None)


class WallClock:
    """Of one process. `file` holds the seconds by which libfaketime shifts it."""

    def __init__(self, file: Path, library: Path) -> None:
        self._file = file
        self._library = library
        self._offsets: list[float] = []
        self._guard = Lock()
        file.parent.mkdir(parents=True, exist_ok=True)
        self._write()

    @property
    def variables(self) -> dict[str, str]:
        """Environment of the process."""
        return {
            "LD_PRELOAD": str(self._library),
            "FAKETIME_TIMESTAMP_FILE": str(self._file),
            "FAKETIME_CACHE_DURATION": str(CACHE_SECONDS),
            "FAKETIME_DONT_FAKE_MONOTONIC": "1",
            # Version 0.9.10 would turn every wait on the monotonic clock into one that is over at once: a JVM then
            # burns twenty times the CPU in its own timers (measured).
            "FAKETIME_FORCE_MONOTONIC_FIX": "0",
            "NO_FAKE_STAT": "1",
        }

    @property
    def offset(self) -> float:
        """Seconds it is off by now."""
        return sum(self._offsets)

    @contextmanager
    def shifted(self, seconds: float) -> Iterator[None]:
        """Off by so many seconds meanwhile; by the sum where several overlap."""
        with self._guard:
            self._offsets.append(seconds)
            self._write()
        try:
            yield
        finally:
            with self._guard:
                self._offsets.remove(seconds)
                self._write()

    def _write(self) -> None:
        """All at once: a process that read half a file would keep its clock, or stop."""
        new = self._file.with_name(f"{self._file.name}.new")
        new.write_text(f"{self.offset:+.3f}\n")
        new.replace(self._file)


def appended_at(bootstrap: str, timeout: float = 2.0) -> float | None:
    """The broker's own wall clock, in seconds since 1970: the time it gives to a message of PROBE_TOPIC. None when it
    does not answer."""
    found: list[float] = []

    def delivered(error: object, message: Message) -> None:
        if error is None:
            found.append(message.timestamp()[1] / 1000)

    producer = Producer({"bootstrap.servers": bootstrap, "delivery.timeout.ms": int(timeout * 1000), "log_level": 0})
    try:
        producer.produce(PROBE_TOPIC, b"", on_delivery=delivered)
        producer.flush(timeout)
    except KafkaException:
        return None
    return found[0] if found else None


def sweep(folder: Path = _SHARED_MEMORY) -> None:
    """Remove what libfaketime leaves behind in shared memory for processes that were killed: only of dead ones."""
    for path in folder.glob("*faketime_*"):
        match = _LEFT_BEHIND.fullmatch(path.name)
        if match and path.stat().st_uid == os.geteuid() and not _lives(int(match[1])):
            path.unlink(missing_ok=True)


def _lives(pid: int) -> bool:
    try:
        return is_alive(psutil.Process(pid))
    except psutil.NoSuchProcess:
        return False
