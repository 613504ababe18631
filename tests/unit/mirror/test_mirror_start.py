"""A mirror that is ended while Spark starts ends in order: no traceback, and Spark is stopped."""

from __future__ import annotations

import asyncio
import os
import signal

import pytest

from blockhouse.config.load import parse_as
from blockhouse.config.mirror import MirrorConfig
from blockhouse.spark.session import SparkNotStarted
from blockhouse_mirror import app

CONFIG = parse_as(
    MirrorConfig,
    """
name: m
source: {name: a, bootstrapServers: "a:9092"}
target: {name: b, bootstrapServers: "b:9092"}
topics: {include: ["t"]}
""",
)


class Starting:
    """Stands for Spark. Its start receives a signal, waits until the loop has seen it, and fails if it is to."""

    def __init__(self, number: signal.Signals | None, *, fails: bool) -> None:
        self.number, self.fails, self.stopped = number, fails, False
        self.loop = asyncio.get_running_loop()

    def __call__(self, *_: object) -> Starting:
        if self.number is not None:
            os.kill(os.getpid(), self.number)
        for _round in range(3):  # the loop reads signals first, and calls their handlers a round later
            asyncio.run_coroutine_threadsafe(asyncio.sleep(0), self.loop).result(5)
        if self.fails:
            raise SparkNotStarted("no JVM", reason="SparkNotStarted")
        return self

    def stop(self) -> None:
        self.stopped = True


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
async def test_ended_while_spark_starts_it_mirrors_nothing(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    spark = Starting(number, fails=False)
    monkeypatch.setattr(app, "SparkApplication", spark)

    assert await app.run(CONFIG) == 0
    assert spark.stopped


async def test_a_jvm_that_the_signal_ended_too_is_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "SparkApplication", Starting(signal.SIGTERM, fails=True))
    assert await app.run(CONFIG) == 0


async def test_a_jvm_that_does_not_start_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "SparkApplication", Starting(None, fails=True))
    with pytest.raises(SparkNotStarted):
        await app.run(CONFIG)
