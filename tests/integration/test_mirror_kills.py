"""What dies under a mirror, at any moment, while records come: nothing is lost, and nothing is doubled by a crash.

`MIRROR_SEEDS` is how many seeds each case runs with; `SEED` is the first of them.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from secrets import randbelow
from typing import Any

import psutil
import pytest
from confluent_kafka import Producer

from e2e.kit.mirror import MirrorProcess, ends
from e2e.kit.mirror_feed import Feed
from e2e.stack import Stack
from tests.integration.conftest import Names
from tests.integration.mirror_feed import until

pytestmark = pytest.mark.integration
SEED = int(os.environ.get("SEED") or randbelow(1 << 31))
SEEDS = int(os.environ.get("MIRROR_SEEDS") or 1)
PARTITIONS = 4
Strike = Callable[[Stack, MirrorProcess, random.Random], None]


def kill_worker(_: Stack, mirror: MirrorProcess, chance: random.Random) -> None:
    worker = chance.choice(list(mirror.workers().values()))
    worker.kill()
    until(lambda: not worker.is_running(), "the worker is dead")


def kill_driver(_: Stack, mirror: MirrorProcess, __: random.Random) -> None:
    mirror.kill_driver()
    mirror.start()


def kill_all(_: Stack, mirror: MirrorProcess, __: random.Random) -> None:
    mirror.kill()
    mirror.start()


def kill_target(stack: Stack, _: MirrorProcess, chance: random.Random) -> None:
    """A request to join whose answer is lost fences the driver by itself: it ends, and is started again as a pod is."""
    broker = stack.kafka["b"].brokers[0]
    broker.kill()
    time.sleep(chance.uniform(0, 3))  # how long it is down is the case, not a wait
    broker.start()


def kill_source(stack: Stack, _: MirrorProcess, chance: random.Random) -> None:
    broker = stack.kafka["a"].brokers[0]
    broker.kill()
    time.sleep(chance.uniform(0, 3))
    broker.start()


def freeze_worker_briefly(_: Stack, mirror: MirrorProcess, chance: random.Random) -> None:
    worker = chance.choice(list(mirror.workers().values()))
    worker.suspend()
    time.sleep(chance.uniform(1, 5))  # less than its grant
    worker.resume()


STRIKES = [kill_worker, kill_driver, kill_all, kill_target, kill_source, freeze_worker_briefly]


@pytest.fixture
def mirror(stack: Stack, tmp_path: Path, names: Names) -> Iterator[tuple[str, MirrorProcess]]:
    topic = names.unique("topic")
    stack.kafka["a"].create_topic(topic, partitions=PARTITIONS)
    made = MirrorProcess(stack.kafka, tmp_path, names.unique("km"), topic, load=LOAD)
    yield topic, made
    made.kill()
    print(f"--- {made.log}\n{made.log.read_text()[-6000:] if made.log.exists() else ''}")


LOAD: dict[str, Any] = {"interval": "1s", "minTasks": 2, "maxTasks": 2}


def mirrored(mirror: MirrorProcess, topic: str) -> int:
    found = mirror.status()
    return sum(each.position for each in found.partitions if each.topic == topic) if found is not None else 0


@pytest.mark.parametrize("number", range(SEEDS))
@pytest.mark.parametrize("strike", STRIKES, ids=lambda strike: str(strike.__name__))
def test_a_crash_loses_and_doubles_nothing(
    stack: Stack, mirror: tuple[str, MirrorProcess], strike: Strike, number: int
) -> None:
    seed = SEED + number
    print(f"SEED={seed}")
    topic, km = mirror
    chance = random.Random(seed)
    with Feed(stack.kafka["a"].bootstrap, topic, range(PARTITIONS), seed=seed):
        km.start()
        until(lambda: mirrored(km, topic) > 500, "records are mirrored")
        time.sleep(chance.uniform(0, 1.5))  # the moment is the case
        strike(stack, km, chance)
        before = mirrored(km, topic)
        until(lambda: runs(km, strike) and mirrored(km, topic) > before + 500, "it continues")
    written = ends(stack.kafka["a"], topic, PARTITIONS)
    until(lambda: runs(km, strike) and km.caught_up(written), "everything is mirrored")
    assert km.terminate() == 0
    found = km.audit()
    assert [each for each in found if not each.exact] == []
    assert sum(each.compared for each in found) == sum(written.values())


def runs(mirror: MirrorProcess, strike: Strike) -> bool:
    """Whether it runs; one that lost its target may have ended as `kill_target` describes, and is started again."""
    if strike is kill_target and mirror.ended:
        assert mirror.wait() == 73
        mirror.start()
    return not mirror.ended


def test_a_worker_frozen_past_its_grant_ends_and_loses_nothing(stack: Stack, mirror: tuple[str, MirrorProcess]) -> None:
    """What it had handed to its client before may be doubled: the audit names it."""
    print(f"SEED={SEED}")
    topic, km = mirror
    with Feed(stack.kafka["a"].bootstrap, topic, range(PARTITIONS), seed=SEED):
        km.start()
        until(lambda: mirrored(km, topic) > 500, "records are mirrored")
        worker = random.Random(SEED).choice(list(km.workers().values()))
        worker.suspend()
        until(lambda: not km.all_held_again(), "its silence is noticed")
        worker.resume()
        until(lambda: not _lives(worker), "it ends by itself")
        until(km.all_held_again, "another task has its partitions")
        before = mirrored(km, topic)
        until(lambda: mirrored(km, topic) > before + 500, "it continues")
    until(lambda: km.caught_up(ends(stack.kafka["a"], topic, PARTITIONS)), "everything is mirrored")
    assert km.terminate() == 0
    assert [each for each in km.audit() if not each.lossless] == []


def test_a_second_driver_fences_the_first(stack: Stack, mirror: tuple[str, MirrorProcess], tmp_path: Path) -> None:
    topic, km = mirror
    second = MirrorProcess(stack.kafka, tmp_path, "second", topic, load=LOAD)
    second.document["name"] = km.document["name"]
    with Feed(stack.kafka["a"].bootstrap, topic, range(PARTITIONS), seed=SEED):
        km.start()
        until(lambda: mirrored(km, topic) > 500, "records are mirrored")
        try:
            second.start(log="second.log")
            assert km.wait() == 73
            until(lambda: mirrored(second, topic) > 500, "the second one mirrors")
        except BaseException:
            second.kill()
            raise
    until(lambda: second.caught_up(ends(stack.kafka["a"], topic, PARTITIONS)), "everything is mirrored")
    assert second.terminate() == 0
    assert [each for each in second.audit() if not each.exact] == []


@pytest.mark.skipif("MIRROR_SEEDS" not in os.environ, reason="it takes a minute: set MIRROR_SEEDS")
@pytest.mark.parametrize("number", range(SEEDS))
def test_a_crash_among_refusals_doubles_at_most_a_letter(
    stack: Stack, mirror: tuple[str, MirrorProcess], number: int
) -> None:
    seed = SEED + number
    print(f"SEED={seed}")
    topic, km = mirror
    chance = random.Random(seed)
    stack.kafka["b"].create_topic(topic, partitions=PARTITIONS, config={"max.message.bytes": "10000"})
    refused = sorted(chance.sample(range(600), 8))
    producer = Producer({"bootstrap.servers": stack.kafka["a"].bootstrap})
    for offset in range(600):
        producer.produce(topic, chance.randbytes(20_000 if offset in refused else 100), partition=0)
    assert producer.flush(60) == 0
    km.document |= {"onRefused": "DeadLetter", "targetTopics": {"interval": "1s", "sync": []}}
    km.start()
    until(lambda: letters(km, topic) > 1, "there are letters")
    time.sleep(chance.uniform(0, 1.5))  # the moment is the case
    kill_worker(stack, km, chance)
    until(lambda: km.caught_up({(topic, 0): 600}), "everything is mirrored")
    assert km.terminate() == 0
    found = km.audit()
    assert [each for each in found if not each.exact] == []
    assert {offset for each in found for offset in each.refused.tolist()} == set(refused)


def letters(mirror: MirrorProcess, topic: str) -> int:
    found = mirror.partition(topic, 0)
    return found.dead_letters if found is not None else 0


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
