"""What a driver hands to Spark: its settings, and how many tasks run at once. Pure; nothing is started here."""

from __future__ import annotations

import re
import sys
from pathlib import Path

from blockhouse.config.pipeline import LOOPBACK, Spark

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
_PODS = {
    # A lease has the key of the gate: between pods it goes over a network. Spark makes the secret for this, and hands
    # it to its executors.
    "spark.authenticate": "true",
    "spark.network.crypto.enabled": "true",
}

_SIZES = ("spark.executor.instances", "spark.executor.cores", "spark.task.cpus")


def settings_of(config: Spark, name: str, daemon: str, host: str) -> dict[str, str]:
    """All of them by key; those of the user come last. `host` is where executors reach the driver."""
    archived = f' "-XX:SharedArchiveFile={ARCHIVE}"' if ARCHIVE.is_file() else ""
    logging = f' "-Dlog4j2.configurationFile={LOG4J}"'
    found = {
        "spark.master": config.master,
        "spark.app.name": name,
        **_DEFAULTS,
        "spark.python.daemon.module": daemon,
        "spark.driver.extraJavaOptions": JAVA_OPTIONS + archived + logging,
    }
    if config.master.startswith("local") or host not in LOOPBACK:
        found |= dict.fromkeys(("spark.driver.host", "spark.driver.bindAddress"), address_of(config, host))
    if config.in_pods:
        found |= _PODS
    return found | config.conf


def address_of(config: Spark, host: str) -> str:
    """Where the driver listens: executors of a `local` master are on this machine, whatever `host` is."""
    return "127.0.0.1" if config.master.startswith("local") or host in LOOPBACK else host


def slots_of(config: Spark) -> int | None:
    """Tasks that can run at once under a `local` master, and in the executors that were asked for as pods, which may
    not be there yet; None when only the cluster knows."""
    if match := re.fullmatch(r"local\[(\d+)(?:,\d+)?\]", config.master):
        return int(match[1])
    if match := re.fullmatch(r"local-cluster\[(\d+),(\d+),\d+\]", config.master):
        return int(match[1]) * int(match[2])
    if config.in_pods:
        pods, cores, each = (int(config.conf.get(key, "1")) for key in _SIZES)
        return pods * (cores // each)
    return 1 if config.master == "local" else None
