"""What is committed and the marker are read one after the other: nothing may be stopped for what changed in between."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse.metadata import v2
from blockhouse.metadata.model import Metadata, Window
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.markers import StreamMarker
from blockhouse_aggregator.protocol.takeover import Start, Stop
from blockhouse_aggregator.runtime.ports import StreamFacts
from blockhouse_aggregator.runtime.stream.resumption import take_over

STREAM = StreamId("a", "events", 0)
MARKER = StreamMarker(topic_id="id", started_ms=0, replica="r1", seq=1, position=5)
LATER = MARKER.model_copy(update={"seq": 7, "position": 40})


def committed(position: int, seq: int, topic_id: str = "id") -> StreamFacts:
    found = Metadata(
        replica="r1",
        seq=seq,
        intent_ms=0,
        topic_id=topic_id,
        leader_epoch=-1,
        position=position,
        window=Window(reference=position),
    )
    text = v2.encode(found)
    return StreamFacts(position, text, 0, 100, topic_id, compacted=False)


NOTHING = StreamFacts(None, "", 0, 100, "id", compacted=False)


class Looks:
    """Kafka and ZooKeeper, which answer each look with the next of their states; the last one stays."""

    def __init__(self, *states: tuple[StreamFacts, StreamMarker | None]) -> None:
        self._states = list(states)
        self.looks = 0
        self.claims: list[str] = []

    async def facts(self, _stream: StreamId, _epoch: int) -> StreamFacts:
        self.looks += 1
        return self._states[min(self.looks, len(self._states)) - 1][0]

    async def marker(self, _stream: StreamId) -> StreamMarker | None:
        return self._states[min(self.looks, len(self._states)) - 1][1]

    async def acceptance(self, _stream: StreamId) -> None:
        return None

    async def claim_restart(self, _stream: StreamId, _seen: StreamMarker | None, _owner: str, accepted: str) -> None:
        self.claims.append(accepted)

    async def identity(self) -> str:
        return ""

    async def know(self, _needed: Any) -> None:
        pass

    async def decision(self) -> Start | Stop:
        ports: Any = SimpleNamespace(group=self, markers=self, schemas=self)
        catalog: Any = self
        _, found = await take_over(ports, catalog, STREAM, replica="r0", owner="r0/1", epoch=1, now_ms=0)
        return found


async def test_an_offset_of_before_the_first_commit_beside_a_later_marker_stops_nothing() -> None:
    """A member was frozen after it had read that nothing is committed; another owner began the stream meanwhile."""
    looks = Looks((NOTHING, MARKER), (committed(5, 1), MARKER))
    found = await looks.decision()
    assert isinstance(found, Start)
    assert found.state.position == 5


async def test_an_older_commit_beside_a_later_marker_stops_nothing() -> None:
    looks = Looks((committed(5, 1), LATER), (committed(44, 8), LATER))
    assert isinstance(await looks.decision(), Start)


@pytest.mark.parametrize(
    ("state", "reason"),
    [((NOTHING, MARKER), "OffsetsExpired"), ((committed(5, 1), LATER), "OffsetsWentBack")],
)
async def test_what_two_looks_agree_about_stops(state: tuple[StreamFacts, StreamMarker], reason: str) -> None:
    looks = Looks(state)
    found = await looks.decision()
    assert isinstance(found, Stop)
    assert found.reason == reason
    assert looks.looks == 2


async def test_what_gives_no_reason_to_stop_is_read_once() -> None:
    looks = Looks((committed(5, 1), MARKER))
    assert isinstance(await looks.decision(), Start)
    assert looks.looks == 1


BEGUN = MARKER.model_copy(update={"topic_id": "former", "restarting": "TopicRecreated"})


async def test_what_an_owner_began_and_did_not_mark_is_claimed() -> None:
    """It committed on the present topic, and died before the marker, which is the former topic's."""
    looks = Looks((committed(5, 1), BEGUN))
    assert isinstance(await looks.decision(), Start)
    assert looks.claims == ["TopicRecreated"]


async def test_an_old_offset_beside_the_marker_of_a_later_topic_claims_nothing() -> None:
    """A member was frozen in between; the stream is another owner's by now, on a topic that was created again."""
    marker = MARKER.model_copy(update={"topic_id": "later", "restarting": "LogTruncated"})
    looks = Looks((committed(5, 1), marker), (committed(9, 2, "later"), marker.model_copy(update={"restarting": ""})))
    assert isinstance(await looks.decision(), Start)
    assert looks.claims == []


async def test_a_marker_that_no_one_has_claimed_for_a_restart_is_left_to_its_owner() -> None:
    looks = Looks((committed(5, 1), MARKER.model_copy(update={"topic_id": "later"})))
    assert isinstance(await looks.decision(), Start)
    assert looks.claims == []
