"""Before a commit, the topic must still be the one the metadata names; a cluster that does not answer is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from blockhouse.errors import Permanent, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.protocol.state import Stage
from blockhouse_aggregator.runtime.stream import topic_watch
from blockhouse_aggregator.runtime.stream.topic_watch import TopicWatch

STREAM = StreamId("a", "t", 0)


class Cluster:
    """Gives these answers, one after the other."""

    def __init__(self, *answers: str | Exception) -> None:
        self.answers = list(answers)

    async def topic_id(self, stream: StreamId, max_age: float = 0.0) -> str:
        answer = self.answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer


def problem(*answers: str | Exception, topic_id: str = "T1", closed: bool = False) -> str:
    async def run() -> str:
        event = asyncio.Event()
        if closed:
            event.set()
        cluster: Any = Cluster(*answers)
        return await TopicWatch(STREAM, event).problem(cluster, topic_id)

    return asyncio.run(run())


@pytest.mark.parametrize(
    ("answers", "expected"),
    [
        (["T1"], ""),
        (["T2"], "TopicRecreated"),
        ([""], ""),
        ([Retryable("away", after=0.0), "T2"], "TopicRecreated"),
        ([Permanent("no such topic", reason="UnknownTopic")], "UnknownTopic"),
    ],
)
def test_what_is_in_the_way_of_a_commit(answers: Sequence[str | Exception], expected: str) -> None:
    assert problem(*answers) == expected


def cut(sealed: tuple[int, int], *answers: bool | Exception, known: int = 3) -> tuple[str, list[tuple[int, int]]]:
    """What is in the way of a round of (stop, leader epoch), at position 20 read in `known`; and what was asked."""
    asked: list[tuple[int, int]] = []

    class Leader:
        async def reaches(self, stream: StreamId, position: int, leader_epoch: int) -> bool:
            asked.append((position, leader_epoch))
            answer = answers[len(asked) - 1]
            if isinstance(answer, Exception):
                raise answer
            return answer

    async def run() -> str:
        leader: Any = Leader()
        state: Any = SimpleNamespace(position=20, leader_epoch=known)
        found: Any = SimpleNamespace(stop=sealed[0], leader_epoch=sealed[1])
        return await TopicWatch(STREAM, asyncio.Event()).cut(leader, state, found)

    return asyncio.run(run()), asked


@pytest.mark.parametrize(
    ("sealed", "answer", "expected"),
    [
        ((25, 4), False, "LogTruncated"),
        ((25, 4), True, ""),
        ((25, -1), False, "LogTruncated"),  # the client does not report it: it may be any
        ((18, 4), False, "LogTruncated"),  # below the position, where only older epochs are natural
        ((18, -1), True, ""),
    ],
)
def test_a_round_that_ends_in_another_epoch_is_committed_only_if_the_log_was_not_cut(
    sealed: tuple[int, int], answer: bool, expected: str
) -> None:
    assert cut(sealed, answer) == (expected, [(20, 3)])
    assert cut(sealed, Retryable("away", after=0.0), answer) == (expected, [(20, 3)] * 2)


@pytest.mark.parametrize(("sealed", "known"), [((25, 3), 3), ((18, 3), 3), ((18, 2), 3), ((25, 4), -1)])
def test_a_leader_is_not_asked_for_every_round(sealed: tuple[int, int], known: int) -> None:
    """Of the same epoch, of older ones below the position, or from a position of which the epoch is not known."""
    assert cut(sealed, known=known) == ("", [])


@pytest.mark.parametrize(
    ("stage", "known", "answers", "expected"),
    [
        (Stage.REPLAY, 3, [True, False], ["", "", "", "", "LogTruncated"]),
        (Stage.INSERTING, 3, [], [""] * 5),
        (Stage.REPLAY, -1, [], [""] * 5),
    ],
    ids=["asked now and then", "nothing is to be read again", "the position's epoch is not known"],
)
def test_a_log_is_asked_for_while_blocks_wait_to_be_read_again(
    stage: Stage, known: int, answers: list[bool], expected: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    now, asked = [0.0], list[tuple[int, int]]()
    monkeypatch.setattr(topic_watch, "loop_time", lambda: now[0])
    block = SimpleNamespace(block=SimpleNamespace(stage=stage))

    class Leader:
        async def reaches(self, stream: StreamId, position: int, leader_epoch: int) -> bool:
            asked.append((position, leader_epoch))
            return answers.pop(0)

    async def run() -> list[str]:
        leader: Any = Leader()
        state: Any = SimpleNamespace(position=20, leader_epoch=known, in_flight=[block])
        watch, found = TopicWatch(STREAM, asyncio.Event()), list[str]()
        for moment in (0.0, 9.9, 10.0, 19.9, 20.0):
            now[0] = moment
            found.append(await watch.cut_below_replays(leader, state))
        return found

    assert (asyncio.run(run()), answers) == (expected, [])
    assert set(asked) <= {(20, 3)}


def test_metadata_of_brokers_without_topic_ids_names_none() -> None:
    assert problem("T1", topic_id="") == ""


def test_a_stream_that_is_dropped_meanwhile_is_not_committed() -> None:
    assert problem(closed=True) == "Closed"
