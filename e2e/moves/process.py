"""The operator as a process of its own that reconciles reassignments, and kills itself before a change of its choice.

Every change, of Kafka and of Kubernetes, asks the leader's fence first: so the fence is where it dies.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import signal
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psutil
import structlog

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.reconcile.reassignment import ReassignmentReconciler
from blockhouse_operator.reconcile.services import Services, Troubles
from e2e.moves.kubernetes import NAMESPACE, FileKubernetes
from e2e.stack.process import is_alive, spawn

log = structlog.get_logger(__name__)

PACE = 0.3
"""Seconds between two reconciles, faster than the operator's own."""


class DeadlyFence(OpenFence):
    """Kills the process before its `deadly`-th change, and notes in `last` which one that would have been."""

    def __init__(self, deadly: int, last: Path) -> None:
        super().__init__()
        self._left = deadly
        self._last = last

    def check(self) -> None:
        self._left -= 1
        if self._left == 0:
            self._last.write_text(json.dumps(_change()))
            os.kill(os.getpid(), signal.SIGKILL)
        super().check()


def _change() -> str:
    """What is about to be changed, by the code that asks: an effect of the throttler, or a request."""
    frame = inspect.stack()[2]
    effect = frame.frame.f_locals.get("effect")
    return type(effect).__name__ if effect is not None else frame.function


class OperatorProcess:
    """One life of an operator, no longer than that of the process that started it.

    `dies_before` counts its changes from 1; 0 lets it live until `kill`.
    """

    def __init__(self, folder: Path, *, dies_before: int = 0) -> None:
        self._last = folder / "last"
        self._alive = folder / "alive"
        for sign in (self._last, self._alive):
            sign.unlink(missing_ok=True)
        arguments = [sys.executable, "-m", "e2e.moves.process", str(folder), str(dies_before)]
        self._process = spawn(arguments, folder=folder, log=folder / "operator.log", dies_with_parent=True, env={})

    @property
    def ended(self) -> bool:
        """Whether it has died by itself. Raises AssertionError when that was no kill."""
        if is_alive(self._process):
            return False
        code = self._process.wait(5)
        assert code == -signal.SIGKILL, f"the operator ended with {code}: see operator.log"
        return True

    @property
    def works(self) -> bool:
        """Whether it has begun to reconcile."""
        return self._alive.exists()

    def last(self) -> str:
        """The change before which it died; empty when it was killed from outside."""
        return str(json.loads(self._last.read_text())) if self._last.exists() else ""

    def kill(self) -> None:
        """Nothing when it has died by itself."""
        with contextlib.suppress(psutil.NoSuchProcess):
            self._process.kill()
        self._process.wait()


async def operate(folder: Path, deadly: int) -> None:
    """Reconcile every reassignment in turn, indefinitely."""
    fence = DeadlyFence(deadly, folder / "last")
    kubernetes = FileKubernetes(folder, fence)
    unused: Any = None  # other resources' adapters
    with tempfile.TemporaryDirectory() as secrets:
        files: Any = kubernetes
        services = Services(
            kubernetes=files, http=unused, clickhouse=unused, endpoints=unused, ensembles=unused,
            fence=fence, troubles=Troubles(time.monotonic), folder=Path(secrets), clock=time.monotonic,
            wall=lambda: datetime.now(UTC), secret=lambda: "",
        )  # fmt: skip
        reconciler = ReassignmentReconciler(services)
        (folder / "alive").touch()
        while True:
            for name in kubernetes.names():
                try:
                    await reconciler.reconcile(NAMESPACE, name)
                except Retryable as error:
                    log.warning("kafka_unanswered", name=name, error=str(error))
            await asyncio.sleep(PACE)


if __name__ == "__main__":
    asyncio.run(operate(Path(sys.argv[1]), int(sys.argv[2])))
