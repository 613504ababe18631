"""The Spark application of one aggregator, and leases as Spark jobs."""

from __future__ import annotations

import contextlib
import os
import re
import sys
from pathlib import Path

from pyspark import SparkConf, SparkContext

from blockhouse.config.pipeline import Spark
from blockhouse_aggregator.spark.task import LeaseFigures, LeaseSpec, run_leases

ARCHIVE = Path(sys.prefix) / "share" / "blockhouse" / "spark.jsa"
"""Classes of Spark's JVM that need not be loaded anew, if `spark.archive` has written them."""
JAVA_OPTIONS = (
    "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -XX:-UsePerfData -XX:MaxMetaspaceSize=192m"
    " -XX:ReservedCodeCacheSize=64m -Xss512k"
)
_DEFAULTS = {
    # The JVM only schedules: rows never pass through it.
    "spark.driver.memory": "256m",
    "spark.testing.reservedMemory": str(64 << 20),
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.eventLog.enabled": "false",
    "spark.scheduler.mode": "FAIR",
    "spark.locality.wait": "0",
    "spark.python.daemon.module": "blockhouse_aggregator.spark.daemon",
    "spark.python.worker.reuse": "true",
    # A lease that fails is replayed under a new lease number; Spark's own retry of it would only be refused.
    "spark.task.maxFailures": "1",
    "spark.stage.maxConsecutiveAttempts": "1",
    "spark.cleaner.periodicGC.interval": "60min",
}


class SparkApplication:
    """Runs leases. Blocking; call from threads."""

    def __init__(self, config: Spark, name: str) -> None:
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
        conf = SparkConf().setMaster(config.master).setAppName(name)
        if config.master.startswith("local"):
            conf.set("spark.driver.host", "127.0.0.1").set("spark.driver.bindAddress", "127.0.0.1")
        conf.setAll(list(_DEFAULTS.items()))
        archived = f' "-XX:SharedArchiveFile={ARCHIVE}"' if ARCHIVE.is_file() else ""
        conf.set("spark.driver.extraJavaOptions", JAVA_OPTIONS + archived)
        conf.setAll(list(config.conf.items()))
        self._context = SparkContext(conf=conf)
        self._context.setLogLevel("ERROR")
        self.slots = slots_of(config.master) or self._context.defaultParallelism

    def run_lease(self, spec: LeaseSpec) -> LeaseFigures:
        """One job with one task; returns when the lease is over. Raises whatever Spark raises when it failed."""
        self._context.setJobGroup(_group(spec), f"lease {spec.number} of {spec.stream}", interruptOnCancel=False)
        figures = self._context.parallelize([spec], 1).mapPartitions(run_leases).collect()
        return figures[0]

    def warm_up(self) -> None:
        """Have the parent of the workers up before the first lease needs one: it takes a second or two to start, during
        which a stream that was taken over would stand still. Where that fails, the first lease says why."""
        with contextlib.suppress(Exception):
            self._context.parallelize([0], 1).mapPartitions(iter).collect()

    def cancel(self, spec: LeaseSpec) -> None:
        """End a job whose worker does not answer: Spark kills the worker, and `run_lease` raises."""
        self._context.cancelJobGroup(_group(spec))

    @property
    def alive(self) -> bool:
        """False when the JVM is gone: the application cannot be mended from here."""
        process = getattr(self._context._gateway, "proc", None)
        return process is None or process.poll() is None

    def stop(self) -> None:
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


def _group(spec: LeaseSpec) -> str:
    return f"{spec.stream}#{spec.number}"


def slots_of(master: str) -> int | None:
    """Tasks that can run at once under a `local` master; None when only the cluster knows."""
    if match := re.fullmatch(r"local\[(\d+)(?:,\d+)?\]", master):
        return int(match[1])
    if match := re.fullmatch(r"local-cluster\[(\d+),(\d+),\d+\]", master):
        return int(match[1]) * int(match[2])
    return 1 if master == "local" else None
