"""What the producer of a task is asked for a run of records."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from blockhouse.config.endpoints import KafkaCluster
from blockhouse_mirror.work import target as module
from blockhouse_mirror.work.target import Content, NotSent, Target

RECORDS: list[Content] = [(b"v%d" % number, None, number, [("h", b"1")]) for number in range(3)]


class Client:
    """Takes records as confluent_kafka does; what `errors` has next is raised instead, None for nothing."""

    def __init__(self, *errors: Exception | None) -> None:
        self.taken: list[tuple[Any, ...]] = []
        self.polls = 0
        self._errors = list(errors)

    def produce(self, topic: str, value: Any, key: Any, partition: int, *others: Any) -> None:
        error = self._errors.pop(0) if self._errors else None
        if error is not None:
            raise error
        self.taken.append((topic, partition, value, *others))

    def poll(self, seconds: float) -> None:
        self.polls += 1


@pytest.fixture
def target_of(monkeypatch: pytest.MonkeyPatch) -> Callable[[Client], Target]:
    def make(client: Client) -> Target:
        monkeypatch.setattr(module, "Producer", lambda _: client)
        return Target(KafkaCluster(name="t", bootstrap_servers="127.0.0.1:1"), "task", 1 << 20, "none")

    return make


def delivered(_: KafkaError | None, __: Any) -> None:
    """Only passed on."""


def test_of_a_run_only_the_last_record_reports(target_of: Callable[[Client], Target]) -> None:
    client = Client()
    target_of(client).send("t", 2, RECORDS, delivered)
    assert client.taken == [
        ("t", 2, value, delivered if number == 2 else None, None, number, headers)
        for number, (value, _, _, headers) in enumerate(RECORDS)
    ]


def test_a_full_queue_is_waited_for_and_the_same_record_is_sent_again(target_of: Callable[[Client], Target]) -> None:
    client = Client(None, BufferError(), BufferError())
    target_of(client).send("t", 2, RECORDS, delivered)
    assert [taken[2] for taken in client.taken] == [b"v0", b"v1", b"v2"]
    assert client.polls == 2


def test_what_the_client_refuses_ends_the_run_and_names_how_many_were_sent(
    target_of: Callable[[Client], Target],
) -> None:
    client = Client(None, KafkaException(KafkaError(KafkaError.MSG_SIZE_TOO_LARGE)))
    with pytest.raises(NotSent) as refused:
        target_of(client).send("t", 2, RECORDS, delivered)
    assert (refused.value.sent, refused.value.cause.code()) == (1, KafkaError.MSG_SIZE_TOO_LARGE)
    assert len(client.taken) == 1
