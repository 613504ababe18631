"""One mirror as a process: Spark, the load of the source, the driver and its HTTP side, until SIGTERM."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

import structlog

from blockhouse.config.mirror import MirrorConfig
from blockhouse.fleet.load.settings import LoadSettings
from blockhouse.fleet.load.sources import opened
from blockhouse.spark.session import SparkApplication, SparkNotStarted
from blockhouse_mirror.runtime.driver import EXIT_OK, Driver
from blockhouse_mirror.runtime.http import MirrorServer
from blockhouse_mirror.work.lease import LeaseFigures, MirrorLease
from blockhouse_mirror.work.task import run_leases

log = structlog.get_logger(__name__)
DAEMON = "blockhouse_mirror.work.daemon"
EXIT_SPARK_DEAD = 70
WATCH_SECONDS = 2.0


async def run(config: MirrorConfig) -> int:
    """Mirror until SIGTERM or SIGINT; the exit code then. Raises SparkNotStarted, Permanent `CannotListen`."""
    ending = asyncio.Event()
    _on_signals(ending.set)  # before Spark, whose start takes seconds
    try:
        application = await asyncio.to_thread(
            SparkApplication, config.spark, f"blockhouse-mirror-{config.name}", run_leases, DAEMON, config.gate.host
        )
    except SparkNotStarted:
        if ending.is_set():  # what ended this process may have ended the JVM too
            return EXIT_OK
        raise
    try:
        return EXIT_OK if ending.is_set() else await _mirror(config, application)
    finally:
        await asyncio.to_thread(application.stop)


async def _mirror(config: MirrorConfig, application: SparkApplication[MirrorLease, LeaseFigures]) -> int:
    with opened(LoadSettings(), config.source, groups=False) as load:
        driver = Driver(config, application, load)
        _on_signals(driver.end)
        server = MirrorServer(driver)
        await server.start()
        log.info("mirror.ready", mirror=config.name, admin=f"{config.admin.host}:{server.port}")
        watch = asyncio.ensure_future(_watch_spark(application, driver))
        try:
            return await driver.run()
        finally:
            watch.cancel()
            await server.stop()


def _on_signals(end: Callable[[], None]) -> None:
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, end)


async def _watch_spark(application: SparkApplication[MirrorLease, LeaseFigures], driver: Driver) -> None:
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        if not application.alive:
            driver.end(EXIT_SPARK_DEAD, "the Spark JVM is gone")
