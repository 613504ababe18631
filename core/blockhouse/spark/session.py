"""The Spark application of one driver, and leases as Spark jobs."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, Protocol, TypeVar

from pyspark import SparkConf, SparkContext

from blockhouse.config.pipeline import Spark
from blockhouse.errors import Permanent
from blockhouse.spark.causes import cause_of

ARCHIVE = Path(sys.prefix) / "share" / "blockhouse" / "spark.jsa"
"""Classes of Spark's JVM that need not be loaded again, if `spark.archive` has written them."""
JAVA_OPTIONS = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:MaxMetaspaceSize=192m"
    " -XX:ReservedCodeCacheSize=64m -Xss512k"
)
LOG4J = Path(__file__).with_name("log4j2.properties")
"""What Spark's JVM logs: errors, and nothing of its start."""
_DEFAULTS = {
    # The JVM only schedules: rows never pass through it.
    "spark.driver.memory": "256m",
    "spark.testing.reservedMemory": str(64 << 20),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.locality.wait": "0",
    "spark.python.worker.reuse": "true",
    # A lease that fails is replayed under a new lease number; Spark's own retry of it would only be refused.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.cleaner.periodicGC.interval": "60min",
}


class SparkNotStarted(Permanent):
    """The application has no JVM; what that printed is on standard error."""

    exit_code = 70


class Lease(Protocol):
    """What a task works by. It is pickled: its class is found by name where the task runs."""

    @property
    def group(self) -> str:
        """Names the lease among those of its application: by it, it is cancelled."""
        ...

    @property
    def title(self) -> str:
        """What Spark shows of it."""
        ...


Spec = TypeVar("Spec", bound=Lease)
Figures = TypeVar("Figures")


class SparkApplication(Generic[Spec, Figures]):
    """Runs leases. Blocking; call from threads."""

    def __init__(
        self, config: Spark, name: str, run: Callable[[Iterable[Spec]], Iterator[Figures]], daemon: str
    ) -> None:
        """`run` is what a task does, for `mapPartitions`: one result a lease, and found by name where the task runs.
        `daemon` names the module that is the workers' parent; it calls `blockhouse.spark.daemon.serve`.

        Raises SparkNotStarted.
        """
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        conf = SparkConf().setMaster(config.master).setAppName(name)
        if config.master.startswith("local"):
            conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        conf.setAll(list(_DEFAULTS.items())).set("spark.python.daemon.module", daemon)
        archived = f' "-XX:SharedArchiveFile={ARCHIVE}"' if ARCHIVE.is_file() else ""
        logging = f' "-Dlog4j2.configurationFile={LOG4J}"'
        conf.set("spark.driver.extraJavaOptions", JAVA_OPTIONS + archived + logging)
        conf.setAll(list(config.conf.items()))
        try:
            self._context = SparkContext(conf=conf)
        except Exception as error:  # Spark raises whatever it likes
            text = f"Spark did not start: {str(error).strip() or repr(error)}; what its JVM printed is above"
            raise SparkNotStarted(text, reason="SparkNotStarted") from error
        self._run = run
        self._context.setLogLevel("ERROR")
        self.slots = slots_of(config.master) or self._context.defaultParallelism

    def run_lease(self, spec: Spec) -> Figures:
        """One job with one task; returns when the lease is over. Raises whatever Spark raises when it failed."""
        self._context.setJobGroup(spec.group, spec.title, interruptOnCancel=False)
        figures = self._context.parallelize([spec], 1).mapPartitions(self._run).collect()
        return figures[0]

    def warm_up(self) -> None:
        """Have the parent of the workers up before the first lease needs one: it takes a second or two to start, during
        which work that was taken over would stand still. Raises SparkNotStarted when no task runs, before any work is
        taken from another process that can do it."""
        try:
            self._context.parallelize([0], 1).mapPartitions(iter).collect()
        except Exception as error:  # Spark raises whatever it likes
            text = f"Spark runs no task, look at its memory and at the disk of spark.local.dir: {cause_of(error)}"
            raise SparkNotStarted(text, reason="SparkNotStarted") from error

    def cancel(self, spec: Spec) -> None:
        """End a job whose worker does not answer: Spark kills the worker, and `run_lease` raises."""
        self._context.cancelJobGroup(spec.group)

    @property
    def alive(self) -> bool:
        """False when the JVM is gone: the application cannot be restarted from here."""
        process = getattr(self._context._gateway, "proc", None)
        return process is None or process.poll() is None

    def stop(self) -> None:
        """Stop the application, whether or not its JVM is there."""
        with contextlib.suppress(Exception):
            self._context.stop()

    def end(self, seconds: float) -> None:
        """Stop, and wait until the JVM has ended too. Raises TimeoutExpired."""
        gateway = self._context._gateway
        assert gateway is not None, "stopped before"
        process = gateway.proc
        self.stop()
        process.stdin.close()
        process.wait(seconds)


def slots_of(master: str) -> int | None:
    """Tasks that can run at once under a `local` master; None when only the cluster knows."""
    if match := re.fullmatch(r"local\[(\d+)(?:,\d+)?\]", master):
        return int(match[1])
    if match := re.fullmatch(r"local-cluster\[(\d+),(\d+),\d+\]", master):
        return int(match[1]) * int(match[2])
    return 1 if master == "local" else None
