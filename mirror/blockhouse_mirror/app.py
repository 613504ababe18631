"""One mirror as a process: Spark, the load of the source, the driver and its HTTP side, until SIGTERM."""

from __future__ import annotations

import asyncio
import signal

import structlog

from blockhouse.config.mirror import MirrorConfig
from blockhouse.fleet.load.settings import LoadSettings
from blockhouse.fleet.load.sources import opened
from blockhouse.spark.session import SparkApplication
from blockhouse_mirror.runtime.driver import Driver
from blockhouse_mirror.runtime.http import MirrorServer
from blockhouse_mirror.work.lease import LeaseFigures, MirrorLease
from blockhouse_mirror.work.task import run_leases

log = structlog.get_logger(__name__)
DAEMON = "blockhouse_mirror.work.daemon"
EXIT_SPARK_DEAD = 70
WATCH_SECONDS = 2.0


async def run(config: MirrorConfig) -> int:
    """Mirror until SIGTERM or SIGINT; the exit code then. Raises SparkNotStarted, Permanent `CannotListen`."""
    application = await asyncio.to_thread(
        SparkApplication, config.spark, f"blockhouse-mirror-{config.name}", run_leases, DAEMON, config.gate.host
    )
    try:
        with opened(LoadSettings(), config.source, groups=False) as load:
            driver = Driver(config, application, load)
            loop = asyncio.get_running_loop()
            for number in (signal.SIGTERM, signal.SIGINT):
                loop.add_signal_handler(number, driver.end)
            server = MirrorServer(driver)
            await server.start()
            log.info("mirror.ready", mirror=config.name, admin=f"{config.admin.host}:{server.port}")
            watch = asyncio.ensure_future(_watch_spark(application, driver))
            try:
                return await driver.run()
            finally:
                watch.cancel()
                await server.stop()
    finally:
        await asyncio.to_thread(application.stop)


async def _watch_spark(application: SparkApplication[MirrorLease, LeaseFigures], driver: Driver) -> None:
    while True:
        await asyncio.sleep(WATCH_SECONDS)
        if not application.alive:
            driver.end(EXIT_SPARK_DEAD, "the Spark JVM is gone")
