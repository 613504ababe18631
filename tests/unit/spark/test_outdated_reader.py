"""A reader that cannot connect any more: the next order gets another one once its certificates were replaced."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from blockhouse.errors import Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.gate.messages import Scan, Trouble
from blockhouse_aggregator.spark import task
from blockhouse_aggregator.spark.task import LeaseSpec

STREAM = StreamId("a", "events", 0)
UNREACHABLE = Retryable("no broker can be reached", reason="")


class Reader:
    """Its cluster cannot be reached."""

    made: list[Reader]

    def __init__(self, *_: object) -> None:
        self.outdated = self.closed = False
        self.made.append(self)

    def close(self) -> None:
        self.closed = True


class Scanner:
    def __init__(self, _: StreamId, reader: Reader, **__: object) -> None:
        self.reader = reader

    def scan(self, *_: object) -> Any:
        raise UNREACHABLE

    def lose_place(self) -> None:
        pass


class Gate:
    """Gives orders until they are over."""

    sent: list[Any]
    following: Iterator[Any]

    def __init__(self, *_: object) -> None:
        self.welcome = SimpleNamespace(quorum=None, blocks=None, database="default", default_format="")
        self.finish = SimpleNamespace(is_set=lambda: False)

    def start(self, _: object) -> None:
        pass

    def next_order(self) -> Any:
        return next(self.following)

    def send(self, message: Any) -> None:
        self.sent.append(message)

    def close(self) -> None:
        pass


@pytest.fixture(autouse=True)
def _alone(monkeypatch: pytest.MonkeyPatch) -> None:
    Reader.made = []
    nothing = SimpleNamespace(close=lambda: None)
    for name, found in (("StreamReader", Reader), ("Scanner", Scanner), ("GateClient", Gate)):
        monkeypatch.setattr(task, name, found)
    for name in ("Inserter", "Letters", "DefaultValues"):
        monkeypatch.setattr(task, name, lambda *_, **__: nothing)
    monkeypatch.setattr(task, "_readers", {})


def worked(between: Any) -> None:
    """A lease with three orders, none of which can be carried out; `between` is called before the last of them."""
    order = Scan.model_construct(topic_id="id")

    def orders() -> Iterator[Any]:
        yield order
        yield order
        between()
        yield order
        yield None

    Gate.following, Gate.sent = orders(), []
    spec = SimpleNamespace(
        stream=STREAM, gate=None, epoch=1, number=1, clickhouse=None, cluster=None, dead_letter_topic=""
    )
    list(task.run_leases([cast(LeaseSpec, spec)]))
    assert [type(message) for message in Gate.sent] == [Trouble] * 3


def test_a_reader_is_kept_while_nothing_would_be_other_with_another() -> None:
    worked(lambda: None)
    assert [reader.closed for reader in Reader.made] == [False]


def test_once_its_certificates_were_replaced_the_next_order_gets_another() -> None:
    def mounted() -> None:
        Reader.made[0].outdated = True

    worked(mounted)
    assert [reader.closed for reader in Reader.made] == [True]
    worked(lambda: None)
    assert [reader.closed for reader in Reader.made] == [True, False]
