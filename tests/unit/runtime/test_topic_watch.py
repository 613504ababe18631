"""Before a commit, the topic must still be the one the metadata names; a cluster that does not answer is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from blockhouse.errors import Permanent, Retryable
from blockhouse.streams import StreamId
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


def test_metadata_of_brokers_without_topic_ids_names_none() -> None:
    assert problem("T1", topic_id="") == ""


def test_a_stream_that_is_dropped_meanwhile_is_not_committed() -> None:
    assert problem(closed=True) == "Closed"
