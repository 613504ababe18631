"""The group that holds positions, when its client never answers."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import KafkaError, KafkaException

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import Permanent
from blockhouse.placement.model import TopicPartition as Key
from blockhouse_mirror.kafka import positions
from blockhouse_mirror.kafka.positions import PositionGroup
from blockhouse_mirror.protocol.position import Holder, Position

POSITION = Position("S", "t-id", 10, 50, 3, "u-id", 40, Holder.SETTLED)


class Client:
    """Its commits wait for `over`, and it cannot be closed."""

    over: threading.Event

    def __init__(self, config: dict[str, Any]) -> None:
        pass

    def commit(self, **_: Any) -> None:
        self.over.wait(60)

    def close(self) -> None:
        raise KafkaException(KafkaError(KafkaError._FATAL))


@pytest.fixture
def group(monkeypatch: pytest.MonkeyPatch) -> Iterator[PositionGroup]:
    Client.over = threading.Event()
    monkeypatch.setattr(positions, "Consumer", Client)
    for name in ("LOST_SECONDS", "CLOSE_SECONDS"):
        monkeypatch.setattr(positions, name, 0.1)
    yield PositionGroup(KafkaCluster(name="b", bootstrap_servers="localhost:9092"), "km-m")
    Client.over.set()


def test_a_commit_that_is_never_answered_ends_the_driver(group: PositionGroup) -> None:
    """It would wait indefinitely, and with it everything that is asked of the group behind it."""
    with pytest.raises(Permanent, match=r"group km-m on cluster b has not answered for 0.1 s") as caught:
        group.write({Key("t", 0): POSITION})

    assert caught.value.reason == "MirrorFenced"
    assert group.fenced == str(caught.value)
    group.close()
    assert not Client.over.is_set()


def test_a_client_that_does_not_end_in_order_ends_all_the_same(group: PositionGroup) -> None:
    Client.over.set()
    group.write({Key("t", 0): POSITION})

    group.close()
