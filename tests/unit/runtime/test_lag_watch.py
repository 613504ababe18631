"""Since when messages of a table wait, what is known while brokers are silent, and what is shown of the replica."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Mapping
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client import CollectorRegistry

from blockhouse.contract.aggregator import StreamStatus
from blockhouse.errors import Retryable
from blockhouse.metadata.model import InFlight, Window
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.log_ends import Ends
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState, TableState
from blockhouse_aggregator.runtime.lag_figures import LagFigures
from blockhouse_aggregator.runtime.process.lag_watch import PERIOD, UNANSWERED, LagWatch
from blockhouse_aggregator.runtime.process.status import stream_status
from blockhouse_aggregator.runtime.stream.letters_written import StreamLetters
from blockhouse_aggregator.runtime.stream.reporting import Counters

STREAM = StreamId("a", "events", 0)
TABLE = 7
LAGS = TableState(TABLE, cursor=10, pending=2)


class Brokers:
    """`answer` of all of them, or what the question raises."""

    answer: Mapping[StreamId, Ends] | Retryable = Retryable("no broker answers")

    def __init__(self) -> None:
        self.meanwhile: list[Callable[[], None]] = []
        """What happens during the next questions, one after another."""

    async def latest(self, cluster: str, streams: Collection[StreamId]) -> Mapping[StreamId, Ends]:
        if self.meanwhile:
            self.meanwhile.pop(0)()
        if isinstance(self.answer, Retryable):
            raise self.answer
        return self.answer

    async def at(self, cluster: str, streams: Collection[StreamId], timestamp_ms: int) -> Mapping[StreamId, int]:
        return {}


class Watching:
    """A watch of one stream, at a time of the test's."""

    def __init__(self) -> None:
        self.now_ms = 1_000
        self.unfit = ""
        self.registry = CollectorRegistry()
        blocks = SimpleNamespace(max_age=1.0, tables={})
        catalog = SimpleNamespace(name=lambda table: "d.t", known=lambda name: None)
        self.owner: Any = SimpleNamespace(
            stream=STREAM,
            epoch=2,
            state=None,
            stop=None,
            committed=None,
            log_end=0,
            awaited_revisions=SimpleNamespace(tables=set),
            context=SimpleNamespace(config=SimpleNamespace(blocks=blocks), catalog=catalog),
            report=SimpleNamespace(counters=Counters(), troubles={}, alarms=(), letters=StreamLetters("", lambda: 0)),
        )
        self.brokers = Brokers()
        self.watch = LagWatch(
            self.brokers, {STREAM: self.owner}, {}, lambda: self.unfit, LagFigures(self.registry), lambda: self.now_ms
        )

    def at(self, now_ms: int, table: TableState) -> int:
        """Since when messages of the table wait, as shown then."""
        self.now_ms = now_ms
        tables = (table,) if not table.idle else ()
        self.owner.state = StreamState("r1", 2, "id", 0, 7, 30, Window(), 0, tables)
        self.watch.refresh()
        return self.watch.table(STREAM, table)[1]

    async def ask(self, answer: Mapping[StreamId, Ends] | Retryable) -> None:
        """One question to the brokers, and a read of the owners."""
        self.brokers.answer = answer
        asking = asyncio.create_task(self.watch.ask("a"))
        await asyncio.sleep(0)  # nothing in it waits for anything before its pause
        asking.cancel()
        self.watch.refresh()

    def status(self) -> StreamStatus:
        return stream_status(self.owner, None, self.watch)

    def gauge(self, name: str) -> float | None:
        return self.registry.get_sample_value(name, {"cluster": "a", "topic": "events", "partition": "0"})


@pytest.fixture
async def watching() -> Watching:
    return Watching()


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Moves the running loop's time forward."""
    offset = 0.0
    real = asyncio.BaseEventLoop.time
    monkeypatch.setattr(asyncio.BaseEventLoop, "time", lambda loop: real(loop) + offset)

    def advance(seconds: float) -> None:
        nonlocal offset
        offset += seconds

    return advance


async def test_while_no_broker_answers_no_lag_of_zero_is_shown(watching: Watching) -> None:
    """A shard is removed once it is drained: what its topics got since the brokers were last heard would be left."""
    watching.at(5_000, TableState(TABLE))
    await watching.ask({STREAM: Ends(30, 30)})
    assert (watching.status().lag, watching.status().drained) == (0, True)
    assert watching.gauge("blockhouse_lag_messages") == 0

    await watching.ask(Retryable("no broker answers"))

    found = watching.status()
    assert (found.lag, found.lag_seconds, found.drained) == (None, None, False)
    assert watching.gauge("blockhouse_lag_messages") is None
    assert found.standing is not None
    assert found.standing.reason == "KafkaSilent"


async def test_messages_that_are_known_to_wait_are_shown_while_no_broker_answers(watching: Watching) -> None:
    watching.at(5_000, LAGS)
    await watching.ask({STREAM: Ends(30, 30)})
    await watching.ask(Retryable("no broker answers"))

    assert watching.status().lag == LAGS.pending


async def test_a_stream_without_a_leader_is_shown_although_other_brokers_answer(
    watching: Watching, clock: Callable[[float], None]
) -> None:
    watching.at(5_000, TableState(TABLE))
    await watching.ask({STREAM: Ends(30, 30)})
    await watching.ask({})
    assert watching.status().drained

    for _ in range(int(PERIOD + UNANSWERED + 1)):
        clock(1)
        watching.watch.refresh()
    await watching.ask({})

    found = watching.status()
    assert found.standing is not None
    assert (found.standing.reason, found.standing.text) == ("KafkaSilent", "no leader of it has answered for 9 s")
    assert (found.lag, found.drained) == (None, False)

    await watching.ask({STREAM: Ends(30, 30)})
    assert (watching.status().standing, watching.status().lag) == (None, 0)


async def test_a_process_that_was_suspended_does_not_call_the_brokers_silent(
    watching: Watching, clock: Callable[[float], None]
) -> None:
    """Whatever runs first when it continues. Nor is it known what they got since."""
    watching.at(5_000, TableState(TABLE))
    await watching.ask({STREAM: Ends(30, 30)})

    clock(60)
    assert (watching.status().standing, watching.status().lag, watching.status().drained) == (None, None, False)
    watching.watch.refresh()
    assert (watching.status().standing, watching.status().lag, watching.status().drained) == (None, None, False)
    assert watching.gauge("blockhouse_lag_messages") is None
    await watching.ask({STREAM: Ends(30, 30)})
    assert (watching.status().lag, watching.status().drained) == (0, True)


async def test_what_brokers_answered_before_a_machine_was_suspended_is_no_lag_of_zero(watching: Watching) -> None:
    """Its monotonic clock stood still, its wall clock was set when it continued."""
    watching.at(5_000, TableState(TABLE))
    await watching.ask({STREAM: Ends(30, 30)})

    watching.now_ms += 60_000

    assert (watching.status().standing, watching.status().lag, watching.status().drained) == (None, None, False)


async def test_a_question_during_which_the_process_was_suspended_is_asked_again(
    watching: Watching, clock: Callable[[float], None]
) -> None:
    watching.at(5_000, TableState(TABLE))
    await watching.ask({STREAM: Ends(30, 30)})

    def answers() -> None:
        watching.brokers.answer = {STREAM: Ends(31, 31)}

    watching.brokers.meanwhile = [lambda: clock(60), answers]
    await watching.ask(Retryable("cluster a did not answer in 4 s"))

    assert watching.brokers.meanwhile == [], "it was asked once"
    assert (watching.status().standing, watching.status().high_watermark) == (None, 31)


async def test_brokers_that_are_silent_after_the_process_was_suspended_are_called_so(
    watching: Watching, clock: Callable[[float], None]
) -> None:
    watching.at(5_000, TableState(TABLE))
    await watching.ask({STREAM: Ends(30, 30)})

    watching.brokers.meanwhile = [lambda: clock(60)]
    await watching.ask(Retryable("cluster a did not answer in 4 s"))

    found = watching.status().standing
    assert found is not None
    assert (found.reason, found.text) == ("KafkaSilent", "cluster a did not answer in 4 s")


async def test_messages_that_come_do_not_make_a_table_wait_for_less_long(watching: Watching) -> None:
    assert watching.at(5_000, LAGS) == 5_000
    assert watching.at(6_000, replace(LAGS, pending=3)) == 5_000
    assert watching.at(90_000, replace(LAGS, pending=40)) == 5_000


async def test_a_table_whose_cursor_moves_waits_since_then(watching: Watching) -> None:
    watching.at(5_000, LAGS)
    assert watching.at(9_000, replace(LAGS, cursor=11)) == 9_000


async def test_a_table_whose_block_is_stored_waits_since_then(watching: Watching) -> None:
    block = Block(InFlight(12, 19, 8, 1, 0, 5), Stage.INSERTING, fresh=True)
    watching.at(5_000, replace(LAGS, block=block))
    assert watching.at(6_000, replace(LAGS, block=block, pending=9)) == 5_000
    assert watching.at(9_000, LAGS) == 9_000


async def test_a_table_waits_since_the_first_message_that_waits_and_not_for_longer(watching: Watching) -> None:
    watching.at(5_000, replace(LAGS, pending=0))
    assert watching.at(8_000, replace(LAGS, pending=0)) == 8_000
    assert watching.at(9_000, replace(LAGS, pending=1)) == 8_000


async def test_the_gauge_is_1_while_the_replica_takes_no_rows(watching: Watching) -> None:
    watching.watch.refresh()
    assert watching.registry.get_sample_value("blockhouse_replica_unfit") == 0
    watching.unfit = "the replica has not answered for 5 s"
    watching.watch.refresh()
    assert watching.registry.get_sample_value("blockhouse_replica_unfit") == 1
    watching.unfit = ""
    watching.watch.refresh()
    assert watching.registry.get_sample_value("blockhouse_replica_unfit") == 0
