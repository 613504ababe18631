"""A mirror whose tasks are in executors of their own, as on a Spark cluster: nothing assumes one process.

It takes minutes and 1.5 GB, so it runs only where `MIRROR_EXECUTORS` is set.
"""

from __future__ import annotations

import os
from contextlib import suppress
from secrets import randbelow

import psutil
import pytest

from e2e.kit.mirror import MirrorProcess, ends
from e2e.kit.mirror_feed import Feed
from e2e.stack import Stack
from tests.integration.conftest import Names
from tests.integration.mirror_feed import MirrorFactory, until

pytestmark = [
    pytest.mark.integration,
    pytest.mark.skipif(not os.environ.get("MIRROR_EXECUTORS"), reason="set MIRROR_EXECUTORS to run it"),
]
SEED = int(os.environ.get("SEED") or randbelow(1 << 31))
SPARK = {"master": "local-cluster[2,1,1024]", "conf": {"spark.executor.memory": "512m"}}
PARTITIONS = 4


def executors(mirror: MirrorProcess) -> list[psutil.Process]:
    return [each for each in psutil.Process(mirror.pid).children(recursive=True) if _executes(each)]


def _executes(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):  # of a zombie, too
        return any("CoarseGrainedExecutorBackend" in word for word in process.cmdline())
    return False


def position(mirror: MirrorProcess) -> int:
    found = mirror.status()
    return sum(each.position for each in found.partitions) if found is not None else 0


def test_a_killed_executor_loses_and_doubles_nothing(stack: Stack, mirror: MirrorFactory, names: Names) -> None:
    print(f"SEED={SEED}")
    topic = names.unique("topic")
    stack.kafka["a"].create_topic(topic, partitions=PARTITIONS)
    km = mirror(topic, spark=SPARK, load={"interval": "1s", "minTasks": 2, "maxTasks": 2})
    with Feed(stack.kafka["a"].bootstrap, topic, range(PARTITIONS), seed=SEED):
        km.start()
        until(lambda: position(km) > 500 and len(executors(km)) == 2, "both executors mirror", 120)
        executors(km)[0].kill()
        until(lambda: km.waits_for_a_lost_task(topic), "it is noticed")
        until(km.all_held_again, "another executor has its partitions", 120)
        before = position(km)
        until(lambda: position(km) > before + 500, "it continues")
    until(lambda: km.caught_up(ends(stack.kafka["a"], topic, PARTITIONS)), "everything is mirrored")
    assert km.terminate() == 0
    found = km.audit()
    assert [each for each in found if not each.exact] == []
    assert sum(each.compared for each in found) == sum(ends(stack.kafka["a"], topic, PARTITIONS).values())
