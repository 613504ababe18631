"""What dies under a mirror, at any moment, while records come: nothing is lost, and nothing is doubled by a crash.

`MIRROR_SEEDS` is how many seeds each case runs with; `SEED` is the first of them. All run on one mirror after another
case's faults, each with a topic of its own; most of their time they wait for a grant to end, so that
`MIRROR_SEEDS=20 pytest -n 3` on this file takes a third of the time.
"""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from secrets import randbelow

import psutil
import pytest
from confluent_kafka import Producer

from blockhouse_mirror.runtime.driver import EXIT_FENCED
from e2e.kit.mirror import Ends, MirrorProcess, ends
from e2e.kit.mirror_feed import Feed
from e2e.stack import Stack
from tests.integration.conftest import Names
from tests.integration.mirror_feed import SOON, until
from tests.integration.mirror_standing import StandingMirror

pytestmark = [pytest.mark.integration, pytest.mark.long]
SEED = int(os.environ.get("SEED") or randbelow(1 << 31))
SEEDS = int(os.environ.get("MIRROR_SEEDS") or 1)
PARTITIONS = 4
Strike = Callable[[Stack, MirrorProcess, str, random.Random], None]


def victim(mirror: MirrorProcess, topic: str, chance: random.Random) -> psutil.Process:
    """The worker of a task that mirrors the topic."""
    holders: list[str] = []

    def held() -> bool:
        found = mirror.status()
        every = found.partitions if found is not None else ()
        holders[:] = sorted({each.holder for each in every if each.topic == topic and each.holder})
        return bool(holders)

    until(held, "a task mirrors the topic")
    return mirror.workers()[chance.choice(holders)]


def kill_worker(_: Stack, mirror: MirrorProcess, topic: str, chance: random.Random) -> None:
    worker = victim(mirror, topic, chance)
    worker.kill()
    until(lambda: not worker.is_running(), "the worker is dead")


def kill_driver(_: Stack, mirror: MirrorProcess, __: str, ___: random.Random) -> None:
    mirror.kill_driver()
    mirror.start()


def kill_all(_: Stack, mirror: MirrorProcess, __: str, ___: random.Random) -> None:
    mirror.kill()
    mirror.start()


def kill_target(stack: Stack, _: MirrorProcess, __: str, chance: random.Random) -> None:
    """A request to join whose answer is lost fences the driver by itself: it ends, and is started again as a pod is."""
    broker = stack.kafka["b"].brokers[0]
    broker.kill()
    time.sleep(chance.uniform(0, 3))  # how long it is down is the case, not a wait
    broker.start()


def kill_source(stack: Stack, _: MirrorProcess, __: str, chance: random.Random) -> None:
    broker = stack.kafka["a"].brokers[0]
    broker.kill()
    time.sleep(chance.uniform(0, 3))
    broker.start()


def freeze_worker_briefly(_: Stack, mirror: MirrorProcess, topic: str, chance: random.Random) -> None:
    worker = victim(mirror, topic, chance)
    worker.suspend()
    time.sleep(chance.uniform(1, 5))  # less than its grant
    worker.resume()


STRIKES = [kill_worker, kill_driver, kill_all, kill_target, kill_source, freeze_worker_briefly]
seeds = pytest.mark.parametrize("seed", range(SEED, SEED + SEEDS), ids=[f"seed{n}" for n in range(SEEDS)])


@pytest.fixture(scope="module")
def standing(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[StandingMirror]:
    found = StandingMirror(running_stack, tmp_path_factory.mktemp("mirror"))
    yield found
    found.close()


def mirrored(mirror: MirrorProcess, topic: str) -> int:
    found = mirror.status()
    return sum(each.position for each in found.partitions if each.topic == topic) if found is not None else 0


def assert_exact(mirror: MirrorProcess, written: Ends, running: Callable[[], bool] = lambda: True) -> None:
    """Of one topic, beside the running mirror: every record is there once, up to positions that are as far."""
    (topic,) = {key.topic for key in written}

    def compared() -> int:
        found = mirror.audit(topic)
        assert [each for each in found if not each.exact] == []
        return sum(each.compared for each in found)

    until(lambda: running() and compared() == sum(written.values()), "the last positions are written")


@seeds
@pytest.mark.parametrize("strike", STRIKES, ids=lambda strike: str(strike.__name__))
def test_a_crash_loses_and_doubles_nothing(
    stack: Stack, standing: StandingMirror, names: Names, strike: Strike, seed: int
) -> None:
    with standing.used() as km:
        crash(stack, km, standing.topic(names.topic, partitions=PARTITIONS), strike, seed)
        if strike is kill_target:
            km.restart()  # it may find itself fenced any time from now on, in the middle of the next case


def crash(stack: Stack, km: MirrorProcess, topic: str, strike: Strike, seed: int) -> None:
    print(f"SEED={seed}")
    chance = random.Random(seed)
    with Feed(stack.kafka["a"].bootstrap, topic, range(PARTITIONS), seed=seed):
        until(lambda: mirrored(km, topic) > 500, "records are mirrored")
        time.sleep(chance.uniform(0, 1.5))  # the moment is the case
        strike(stack, km, topic, chance)
        before = mirrored(km, topic)
        until(lambda: runs(km, strike) and mirrored(km, topic) > before + 500, "it continues")
    written = ends(stack.kafka["a"], topic, PARTITIONS)
    until(lambda: runs(km, strike) and km.caught_up(written), "everything is mirrored")
    assert_exact(km, written, lambda: runs(km, strike))


def runs(mirror: MirrorProcess, strike: Strike) -> bool:
    """Whether it runs; one that lost its target may have ended as `kill_target` describes, and is started again."""
    if strike is kill_target and mirror.ended:
        mirror.restart()
    return not mirror.ended


@seeds
def test_a_worker_frozen_past_its_grant_ends_and_loses_nothing(
    stack: Stack, standing: StandingMirror, names: Names, seed: int
) -> None:
    """What it had handed to its client before may be doubled: the audit names it."""
    with standing.used() as km:
        freeze(stack, km, standing.topic(names.topic, partitions=PARTITIONS), seed)


def freeze(stack: Stack, km: MirrorProcess, topic: str, seed: int) -> None:
    print(f"SEED={seed}")
    with Feed(stack.kafka["a"].bootstrap, topic, range(PARTITIONS), seed=seed):
        until(lambda: mirrored(km, topic) > 500, "records are mirrored")
        worker = victim(km, topic, random.Random(seed))
        worker.suspend()
        until(lambda: km.waits_for_a_lost_task(topic), "its silence is noticed")
        worker.resume()
        until(lambda: not _lives(worker), "it ends by itself")
        until(km.all_held_again, "another task has its partitions")
        before = mirrored(km, topic)
        until(lambda: mirrored(km, topic) > before + 500, "it continues")
    written = ends(stack.kafka["a"], topic, PARTITIONS)
    until(lambda: km.caught_up(written), "everything is mirrored")
    until(lambda: sum(each.compared for each in km.audit(topic)) == sum(written.values()), "positions are written")
    assert [each for each in km.audit(topic) if not each.lossless] == []


@seeds
def test_a_second_driver_fences_the_first(stack: Stack, standing: StandingMirror, names: Names, seed: int) -> None:
    print(f"SEED={seed}")
    with standing.used() as first:
        topic = standing.topic(names.topic, partitions=PARTITIONS)
        with Feed(stack.kafka["a"].bootstrap, topic, range(PARTITIONS), seed=seed):
            until(lambda: mirrored(first, topic) > 500, "records are mirrored")
            second = standing.second()
            assert first.wait(SOON) == EXIT_FENCED  # a driver starts slowly on a crowded machine
            before = mirrored(second, topic)
            until(lambda: mirrored(second, topic) > before + 500, "the second one mirrors")
        written = ends(stack.kafka["a"], topic, PARTITIONS)
        until(lambda: second.caught_up(written), "everything is mirrored")
        assert_exact(second, written)


@pytest.mark.skipif("MIRROR_SEEDS" not in os.environ, reason="set MIRROR_SEEDS to run it")
@seeds
def test_a_crash_among_refusals_doubles_at_most_a_letter(
    stack: Stack, standing: StandingMirror, names: Names, seed: int
) -> None:
    with standing.used() as km:
        stack.kafka["b"].create_topic(standing.named(names.topic), partitions=1, config={"max.message.bytes": "10000"})
        crash_among_refusals(stack, km, standing.topic(names.topic, partitions=1), seed)


def crash_among_refusals(stack: Stack, km: MirrorProcess, topic: str, seed: int) -> None:
    print(f"SEED={seed}")
    chance = random.Random(seed)
    refused = sorted(chance.sample(range(600), 8))
    producer = Producer({"bootstrap.servers": stack.kafka["a"].bootstrap})
    for offset in range(600):
        producer.produce(topic, chance.randbytes(20_000 if offset in refused else 100), partition=0)
    assert producer.flush(60) == 0
    until(lambda: letters(km, topic) > 1, "there are letters")
    time.sleep(chance.uniform(0, 1.5))  # the moment is the case
    kill_worker(stack, km, topic, chance)
    written = ends(stack.kafka["a"], topic, 1)
    until(lambda: km.caught_up(written), "everything is mirrored")
    until(lambda: sum(each.compared for each in km.audit(topic)) == 600, "positions are written")
    found = km.audit(topic)
    assert [each for each in found if not each.exact] == []
    assert {offset for each in found for offset in each.refused.tolist()} == set(refused)


def letters(mirror: MirrorProcess, topic: str) -> int:
    found = mirror.partition(topic, 0)
    return found.dead_letters if found is not None else 0


def _lives(process: psutil.Process) -> bool:
    with suppress(psutil.NoSuchProcess):
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    return False
