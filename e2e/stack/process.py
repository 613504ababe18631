"""Processes of servers: started in a session of their own, found again by a mark, ended for certain.

The mark is an environment variable with the server's folder. Unlike a pid in a file it can neither be stale nor
name a stranger, so a stack whose starter crashed can still be stopped. Nothing here may signal an unmarked process.
"""

from __future__ import annotations

import logging
import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import psutil

logger = logging.getLogger(__name__)

MARK = "BLOCKHOUSE_STACK_SERVER"
SLOW = 30.0
"""Seconds of a wait that are worth a warning: what ran out of time then shows where it went."""

_spawner = ThreadPoolExecutor(max_workers=1, thread_name_prefix="stack-spawner")
"""The kernel's parent-death signal follows the THREAD that forked: this one lives as long as the interpreter."""


def spawn(
    command: Sequence[str],
    *,
    folder: Path,
    log: Path,
    dies_with_parent: bool,
    env: Mapping[str, str],
    group: int | None = None,
) -> psutil.Process:
    """Starts `command` in `folder`, its output appended to `log`, marked with `folder`.

    With `dies_with_parent` the kernel kills it when this process ends, however it ends. `group` is the group id it runs
    under, by which packet filters distinguish its connections from others'; only root may choose one.
    """
    options = ["--pdeathsig", "KILL"] if dies_with_parent else []
    options += ["--regid", str(group), "--clear-groups"] if group is not None else []
    prefix = ["setpriv", *options, "--"] if options else []

    def start() -> psutil.Process:
        with log.open("ab") as output:
            return psutil.Popen(
                [*prefix, *command],
                cwd=folder,
                env={**os.environ, **env, MARK: str(folder)},
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    return _spawner.submit(start).result()


def find(folder: Path) -> psutil.Process | None:
    """The living process marked with `folder`, no matter which process started it."""
    for process in psutil.process_iter():
        try:
            if process.environ().get(MARK) == str(folder) and is_alive(process):
                return process
        except psutil.Error:  # gone meanwhile, a zombie, or of another user: not one of ours
            continue
    return None


def is_alive(process: psutil.Process) -> bool:
    """False also for a zombie: it answers no request."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def signal_session(process: psutil.Process, number: signal.Signals) -> None:
    """Signals every process of the session a server leads: Spark's Python workers leave its process group, not its
    session. Processes that are gone are no error."""
    for pid in session_members(process.pid):
        try:
            os.kill(pid, number)
        except ProcessLookupError:
            continue


def session_members(leader: int) -> list[int]:
    """Pids of the living processes of the session `leader`, itself first."""
    found = []
    for pid in psutil.pids():
        try:
            if os.getsid(pid) == leader:
                found.append(pid)
        except ProcessLookupError:
            continue
    return sorted(found, key=lambda pid: pid != leader)


def wait_dead(process: psutil.Process, timeout: float) -> bool:
    """Waits up to `timeout` seconds for its death, reaps it, and returns whether it died."""
    try:
        process.wait(timeout)
    except psutil.TimeoutExpired:
        return False
    return True


def wait_until(
    condition: Callable[[], bool], *, timeout: float, interval: float = 0.05, what: str | None = None
) -> bool:
    """Polls until `condition()` holds; False when it did not within `timeout` seconds. Warns that `what` was slow."""
    began = time.monotonic()
    while not condition():
        if time.monotonic() > began + timeout:
            return False
        time.sleep(interval)
    if what is not None and (seconds := time.monotonic() - began) > SLOW:
        logger.warning("%s: only after %.0f s", what, seconds)
    return True
