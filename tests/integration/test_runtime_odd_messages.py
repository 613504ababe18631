"""Valid Kafka, odd content: random headers, keys, timestamps and sizes stop no stream and cost no good message.

`ODD_MESSAGES=100000 SEED=n` makes it longer and repeats it; a failure prints its seed.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer  # type: ignore[import-untyped]

from blockhouse.contract.aggregator import Phase
from e2e.stack import Stack
from tests.integration.runtime_pipeline import Loading, loading
from tests.integration.test_runtime_messages import dead_letters
from tests.integration.test_runtime_poison import RawName

pytestmark = pytest.mark.integration

MESSAGES = int(os.environ.get("ODD_MESSAGES", "4000"))
SEED = int(os.environ.get("SEED", str(Random().randrange(1 << 32))))
STREAM = ("a", 0)
TABLE = "default.odd"
LAST_MS = (1 << 32) * 1000 - 1
"""The last millisecond that a DateTime can hold."""
TIMES = (0, 1, 999, 1_700_000_000_000, LAST_MS, LAST_MS + 1, 253_402_300_800_000, (1 << 53) + 1, (1 << 62))


@dataclass
class Sent:
    """What was acknowledged: offsets of messages that must be rows, and of those that can only be dead letters."""

    good: dict[int, int] = field(default_factory=dict)
    odd: set[int] = field(default_factory=set)


@pytest.fixture(scope="module")
def running(running_stack: Stack, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Loading]:
    settings = {"unknownTable": "deadLetter"}
    folder = tmp_path_factory.mktemp("odd")
    with loading(running_stack, folder, "odd", aggregators=1, clusters=1, settings=settings, before=prepare) as found:
        yield found


def prepare(found: Loading) -> None:
    """Any timestamp is taken by the broker, as by those of clusters that are older than the limit of an hour."""
    limits = {"message.timestamp.after.max.ms": str(2**63 - 1), "message.timestamp.before.max.ms": str(2**63 - 1)}
    found.set_topic_config(found.pipeline.spec.topic, limits)


def random_name(chance: Random) -> str:
    return chance.choice(
        ["", "table", "format", "schema", "x", "Ünïcödé", "💥", "a" * chance.randrange(1, 3000), "tab\tle", "\u202e"]
    )


def random_bytes(chance: Random) -> bytes | None:
    return chance.choice([None, b"", b"\0", b"\xff" * 7, chance.randbytes(chance.randrange(1, 2000)), b"default.odd"])


def random_headers(chance: Random) -> list[tuple[str, bytes | None]]:
    return [(random_name(chance), random_bytes(chance)) for _ in range(chance.randrange(12))]


def random_size(chance: Random) -> int:
    return chance.choice([0, 1, 10, 100, 1000, 100_000 if chance.random() < 0.05 else 50])


def produce(pipeline: Loading, chance: Random, count: int) -> Sent:
    """`count` messages of which about half must become rows."""
    sent = Sent()
    bootstrap = {"bootstrap.servers": pipeline.stack.kafka[STREAM[0]].bootstrap, "log_level": 0, "linger.ms": 5}
    producer, topic = Producer({**bootstrap, "enable.idempotence": True}), pipeline.pipeline.spec.topic
    routed: list[tuple[str, bytes | None]] = [("table", TABLE.encode()), ("format", b"json")]
    for number in range(count):
        key = random_bytes(chance)
        if chance.random() < 0.5:
            row = {"id": number, "text": "x" * random_size(chance)}
            extra = [(f"x{name}", value) for name, value in random_headers(chance)]
            headers, value, stamp = [*extra, *routed], json.dumps(row).encode(), chance.choice(TIMES[:5])

            def delivered(error: Any, message: Any, number: int = number) -> None:
                assert error is None, error
                sent.good[message.offset()] = number
        else:
            headers = [*(routed if chance.random() < 0.5 else ()), *random_headers(chance)]
            value, stamp = chance.randbytes(random_size(chance)), chance.choice(TIMES)

            def delivered(error: Any, message: Any, size: int = len(value)) -> None:
                assert error is None, error
                if size >= 10:  # less may be no row at all: empty, or a blank line
                    sent.odd.add(message.offset())

        producer.produce(
            topic,
            value,
            key,
            partition=STREAM[1],
            headers=headers,  # type: ignore[arg-type]
            timestamp=stamp,
            on_delivery=delivered,
        )
        producer.poll(0)
    assert producer.flush(120) == 0
    return sent


def produce_unreadable(pipeline: Loading, chance: Random, count: int) -> set[int]:
    """Messages with header names that are not UTF-8."""
    producer = KafkaProducer(bootstrap_servers=pipeline.stack.kafka[STREAM[0]].bootstrap)
    topic = pipeline.pipeline.spec.topic
    try:
        waiting = []
        for _ in range(count):
            name: Any = RawName(bytes([0xE9, *chance.randbytes(chance.randrange(9)), 0xFF]))
            headers = [("table", TABLE.encode()), (name, b"1")]
            chance.shuffle(headers)
            waiting.append(producer.send(topic, value=b"{}", partition=STREAM[1], headers=headers))
        return {int(one.get(30).offset) for one in waiting}
    finally:
        producer.close()


def test_odd_messages_stop_no_stream_and_cost_no_good_one(running: Loading) -> None:
    chance = Random(SEED)
    running.feed.table("odd", "id UInt64, text String, at DateTime DEFAULT now()")
    sent = produce(running, chance, MESSAGES // 2)
    sent.odd |= produce_unreadable(running, chance, 20)
    later = produce(running, chance, MESSAGES // 2)
    sent = Sent({**sent.good, **later.good}, sent.odd | later.odd)
    (aggregator,) = running.aggregators
    try:
        running.wait("everything read", running.pipeline.quiet, 60 + MESSAGES / 200)
        rows = running.stack.clickhouse[1, 1].execute(f"SELECT _kafka_offset, id FROM {TABLE}")
        stored = {offset: number for offset, number in rows if offset in sent.good}
        assert stored == sent.good, f"SEED={SEED}"
        assert len(rows) == len({offset for offset, _ in rows}), f"SEED={SEED}"
        stream = running.stream(*STREAM)
        letters = {int(key.rpartition("/")[2]) for key in dead_letters(running, STREAM[0])}
        assert sent.odd - letters == set(), f"SEED={SEED}"
        assert letters & set(sent.good) == set(), f"SEED={SEED}"
        assert aggregator.stream(stream).state is Phase.CONSUME, f"SEED={SEED}"
    except AssertionError:
        print(f"SEED={SEED} ODD_MESSAGES={MESSAGES}")
        raise
