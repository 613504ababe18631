"""A frozen aggregator that wakes up after another one took over must not commit anything."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.group import Committed
from blockhouse_aggregator.protocol.commits import APPLIED
from e2e.stack import Stack
from tests.integration.conftest import Names, TopicFactory
from tests.integration.kafka_recorder import member, settings_of

pytestmark = pytest.mark.integration

ROOT = Path(__file__).parents[2]


class Zombie:
    def __init__(self, bootstrap: str, topic: str, group: str) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.integration.kafka_zombie", bootstrap, topic, group],
            cwd=ROOT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def send(self, line: str) -> None:
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def hear(self) -> str:
        assert self.process.stdout is not None
        return self.process.stdout.readline().strip()

    def signal(self, number: signal.Signals) -> None:
        os.kill(self.process.pid, number)


@pytest.fixture
def topic_name(topic: TopicFactory) -> str:
    return topic(1)


@pytest.fixture
def zombie(stack: Stack, topic_name: str, names: Names) -> Iterator[Zombie]:
    child = Zombie(stack.kafka["a"].bootstrap, topic_name, names.group)
    yield child
    child.process.kill()
    child.process.wait(60)


def test_what_a_thawed_member_commits_after_a_takeover_is_refused(
    stack: Stack, topic_name: str, names: Names, zombie: Zombie
) -> None:
    assert zombie.hear() == "ready"
    zombie.send("commit 10")
    assert zombie.hear() == "applied"
    stream = StreamId("a", topic_name, 0)
    cluster, kafka = settings_of(stack.kafka["a"].bootstrap, topic_name, names.group, session_timeout=6)

    zombie.signal(signal.SIGSTOP)
    with member(cluster, kafka, "other") as (subject, heard):
        epoch = heard.owns(1)[stream]
        assert subject.committed(stream, epoch).result(60) == Committed(10, "zombie")
        assert subject.commit(stream, epoch, 30, "new owner").result(60) == APPLIED

        zombie.send("commit 20")  # it finds this in its pipe the moment it wakes up
        zombie.signal(signal.SIGCONT)
        verdict, reason = zombie.hear().split()
        assert verdict == "refused"
        assert reason in {"UnknownMember", "StaleEpoch", "FencedInstance", "IllegalGeneration"}
        zombie.send("drops")
        assert zombie.hear() == "lost"
        zombie.send("commit 21")
        assert zombie.hear() == "refused StaleEpoch"
        assert heard.owns(1) == {stream: epoch}
        assert subject.committed(stream, epoch).result(60) == Committed(30, "new owner")
