"""What the operator does to Kafka for a reassignment, in this order: a throttle is in force before anything moves."""

from __future__ import annotations

from contextlib import nullcontext
from unittest.mock import Mock

import pytest

from blockhouse.errors import Permanent
from blockhouse.placement.model import TopicPartition
from blockhouse_operator.adapters import reassignment
from blockhouse_operator.adapters.reassignment import ReassignmentKafka

MOVE = {TopicPartition("t", 0): (1, 2)}


@pytest.fixture
def done(monkeypatch: pytest.MonkeyPatch) -> Mock:
    """Every request to Kafka and to the throttler, in order."""
    made = Mock()
    made.fleet.reassign.return_value = {}
    monkeypatch.setattr(reassignment, "KafkaFleet", lambda _: nullcontext(made.fleet))
    monkeypatch.setattr(reassignment, "opened", lambda *_: nullcontext(made.loads))
    monkeypatch.setattr(reassignment, "Throttler", lambda *_: made.throttler)
    monkeypatch.setattr(ReassignmentKafka, "_chosen", lambda *_: (MOVE, []))
    return made


def start() -> str:
    kafka = ReassignmentKafka(Mock(), Mock(), Mock(), clock=lambda: 0.0)
    kafka.throttle(Mock(), Mock())
    return kafka.start(Mock(), Mock(), Mock())


def requests(done: Mock) -> list[str]:
    return [name for name, _, _ in done.mock_calls if name in ("throttler.before_start", "fleet.reassign")]


def test_nothing_moves_before_its_throttle_is_set(done: Mock) -> None:
    assert start() == ""
    assert requests(done) == ["throttler.before_start", "fleet.reassign"]


def test_what_cannot_be_throttled_is_not_moved(done: Mock) -> None:
    done.throttler.before_start.side_effect = Permanent("no right to set it", reason="Unauthorized")

    assert start() == "no right to set it"
    assert requests(done) == ["throttler.before_start"]
