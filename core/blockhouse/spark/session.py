"""The Spark application of one driver, and leases as Spark jobs."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterable, Iterator
from typing import Generic, Protocol, TypeVar

from pyspark import SparkConf, SparkContext

from blockhouse.config.pipeline import Spark
from blockhouse.errors import Permanent, Retryable
from blockhouse.spark.causes import cause_of
from blockhouse.spark.settings import address_of, settings_of, slots_of


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
        self,
        config: Spark,
        name: str,
        run: Callable[[Iterable[Spec]], Iterator[Figures]],
        daemon: str,
        host: str = "127.0.0.1",
    ) -> None:
        """`run` is what a task does, for `mapPartitions`: one result a lease, and found by name where the task runs.
        `daemon` names the module that is the workers' parent; it calls `blockhouse.spark.daemon.serve`. `host` is where
        executors elsewhere reach this process.

        Raises SparkNotStarted.
        """
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        os.environ.setdefault("SPARK_LOCAL_IP", address_of(config, host))
        conf = SparkConf().setAll(list(settings_of(config, name, daemon, host).items()))
        try:
            self._context = SparkContext(conf=conf)
        except Exception as error:  # Spark raises whatever it likes
            text = f"Spark did not start: {str(error).strip() or repr(error)}; what its JVM printed is above"
            raise SparkNotStarted(text, reason="SparkNotStarted") from error
        self._run = run
        self._context.setLogLevel("ERROR")
        self.slots = slots_of(config) or self._context.defaultParallelism

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
            text = f"Spark runs no task, check its memory and the disk of spark.local.dir: {cause_of(error)}"
            raise SparkNotStarted(text, reason="SparkNotStarted") from error

    def cancel(self, spec: Spec) -> None:
        """End a job whose worker does not answer: Spark kills the worker, and `run_lease` raises. Raises Retryable when
        Spark cannot."""
        group = spec.group
        try:
            self._context.cancelJobGroup(group)
        except Exception as error:  # Spark raises whatever it likes
            raise Retryable(f"Spark does not cancel the job of {group}: {cause_of(error)}") from error

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
