"""`/history`, `/threads` and `/log-level` over HTTP."""

from __future__ import annotations

import asyncio
import itertools
import json
import logging
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import asynccontextmanager

import pytest
import structlog
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from blockhouse.contract.diagnosis import (
    InitialBlock,
    InitialMetadata,
    InitialTable,
    Ownership,
    TakenOverBlock,
    Threads,
)
from blockhouse.metadata import codec
from blockhouse.metadata.model import InFlight, Metadata, TableEntry, Window
from blockhouse_aggregator.admin import diagnosis
from blockhouse_aggregator.admin.diagnosis import DiagnosisRoutes
from blockhouse_aggregator.protocol.state import Block, Stage, StreamState, TableState
from blockhouse_aggregator.runtime.stream.ownership_history import KEPT, TABLES, OwnershipHistory

Client = TestClient[web.Request, web.Application]


@asynccontextmanager
async def serving(history: Sequence[Ownership] = ()) -> AsyncIterator[Client]:
    app = web.Application()
    app.add_routes(DiagnosisRoutes(lambda: history).all())
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest.fixture(autouse=True)
def level() -> Iterator[None]:
    before = logging.getLogger().level
    yield
    logging.getLogger().setLevel(before)


def taken_over(*tables: TableState, position: int = 30) -> StreamState:
    return StreamState("r1", 2, "id", 0, 7, position, Window(), 0, tables)


def history() -> OwnershipHistory:
    clock = itertools.count(1000, 1000)
    return OwnershipHistory(lambda: next(clock))


async def test_the_history_shows_when_a_stream_was_owned_and_what_it_began_with() -> None:
    kept = history()
    left = TableState(3, Block(InFlight(12, 19, 8, 1, 0, 5), Stage.REPLAY, fresh=False))
    kept.began("a/t/0", 2, taken_over(left), {3: "d.t"}.__getitem__)
    kept.ended("a/t/0", 2, "revoked")
    kept.began("a/t/1", 2, taken_over(), str)

    async with serving(kept.all()) as client:
        first, second = map(Ownership.parse, await (await client.get("/history")).json())

    assert first.replays == (TakenOverBlock(table="d.t", begin=12, end=19),)
    assert (first.began_ms, first.ended_ms, first.why) == (1000, 2000, "revoked")
    assert (first.position, first.sequence) == (30, 7)
    assert (second.stream, second.ended_ms, second.why, second.replays) == ("a/t/1", 0, "", ())


def test_each_time_that_a_stream_is_taken_over_again_is_one_of_its_own() -> None:
    kept = history()
    for why in ("CommitUnknown", "revoked"):
        kept.began("a/t/0", 2, taken_over(), str)
        kept.ended("a/t/0", 2, why)
    kept.ended("a/t/0", 2, "never began again")

    assert [entry.why for entry in kept.all()] == ["CommitUnknown", "revoked"]


def test_the_history_is_bounded() -> None:
    kept = history()
    for number in range(KEPT + 5):
        kept.began(f"a/t/{number}", 1, taken_over(), str)

    assert [entry.stream for entry in kept.all()] == [f"a/t/{number}" for number in range(5, KEPT + 5)]


def committed(*tables: TableEntry, position: int = 30) -> Metadata:
    """By r2, valid: its counts add up to the position."""
    sealed = sum(entry.in_flight.messages for entry in tables if entry.in_flight is not None)
    holes = position - 10 - sealed - 1 - sum(entry.pending for entry in tables)
    window = Window(reference=10, sealed=sealed, dead=1, holes=holes)
    return Metadata("r2", 6, 900, "topic", 4, position, window, tables)


async def test_the_history_shows_the_whole_metadata_that_was_found() -> None:
    block = InFlight(12, 19, 8, 2, 77, 800)
    found = committed(TableEntry(3, block), TableEntry(9, None, 25, 2), TableEntry(11, InFlight(20, 20, 1, 1, 5, 900)))
    kept = history()
    kept.began("a/t/0", 2, taken_over(), {3: "d.t", 9: "d.u", 11: "#11"}.__getitem__, found=found)

    async with serving(kept.all()) as client:
        (answer,) = await (await client.get("/history")).json()

    metadata = Ownership.parse(answer).metadata
    assert metadata is not None
    assert codec.decode(metadata.text, metadata.committed_offset) == found
    assert (metadata.replica, metadata.sequence, metadata.intent_ms) == ("r2", 6, 900)
    assert (metadata.topic_id, metadata.leader_epoch) == ("topic", 4)
    assert (metadata.committed_offset, metadata.position) == (12, 30)
    counts = (metadata.reference, metadata.sealed, metadata.dead, metadata.holes, metadata.pending)
    assert (counts, sum(counts)) == ((10, 9, 1, 8, 2), 30)
    recorded = InitialBlock(begin=12, end=19, messages=8, revision=2, crc=77, intent_ms=800)
    assert metadata.tables[0] == InitialTable(table="d.t", in_flight=recorded, cursor=None, pending=0)
    assert metadata.tables[1] == InitialTable(table="d.u", in_flight=None, cursor=25, pending=2)
    assert (metadata.tables[2].table, metadata.tables_left_out) == ("#11", 0)
    assert "inFlight" not in answer["metadata"]["tables"][1], "absent, not null"


def test_a_stream_without_metadata_has_none_in_the_history() -> None:
    kept = history()
    kept.began("a/t/0", 2, taken_over(), str)

    (entry,) = kept.all()
    assert "metadata" not in entry.written()


def test_of_a_very_large_metadata_the_first_tables_are_listed_and_its_text_has_all() -> None:
    found = committed(*(TableEntry(number, None, 20, 1) for number in range(1, TABLES + 6)), position=200)
    kept = history()
    kept.began("a/t/0", 2, taken_over(), str, found=found)

    (entry,) = kept.all()
    assert entry.metadata is not None
    assert [table.table for table in entry.metadata.tables] == [str(number) for number in range(1, TABLES + 1)]
    assert entry.metadata.tables_left_out == 5
    assert codec.decode(entry.metadata.text) == found


def test_a_metadata_that_contradicts_itself_is_shown_without_its_text_and_fails_no_takeover() -> None:
    found = committed(TableEntry(3, InFlight(12, 11, 8, 2, 77, 800)))
    kept = history()
    kept.began("a/t/0", 2, taken_over(), str, found=found)

    (entry,) = kept.all()
    assert entry.metadata is not None
    assert (entry.metadata.text, [table.table for table in entry.metadata.tables]) == ("", ["3"])


def test_the_contract_states_how_many_tables_are_listed() -> None:
    assert f"the first {TABLES}" in (InitialMetadata.model_fields["tables"].description or "")


ASKED = {"by": "ann", "why": "commits are slow"}


async def test_the_level_is_changed_until_the_process_ends() -> None:
    logging.getLogger().setLevel(logging.INFO)
    async with serving() as client:
        before = await (await client.get("/log-level")).json()
        put = await client.put("/log-level", json={"level": "debug", **ASKED})
        answer = await put.json()
        got = await (await client.get("/log-level")).json()

    assert before == {"level": "info", "by": "", "why": ""}
    assert (put.status, answer, got) == (200, got, {"level": "debug", **ASKED})
    assert logging.getLogger().level == logging.DEBUG


@pytest.mark.parametrize(("before", "after"), [*itertools.permutations(["debug", "warning", "error"], 2)])
async def test_each_change_is_logged_with_who_asked_and_why_however_little_is_logged(
    before: str, after: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    logging.getLogger().setLevel(before.upper())
    own = logging.getLogger("blockhouse_aggregator.admin.diagnosis")
    logger = structlog.wrap_logger(own, [structlog.processors.JSONRenderer()], structlog.stdlib.BoundLogger)
    monkeypatch.setattr(diagnosis, "log", logger)
    async with serving() as client:
        await client.put("/log-level", json={"level": after, **ASKED})

    (change,) = (record for record in caplog.records if record.name == own.name)
    assert change.levelname == "WARNING"
    assert json.loads(change.message) == {"event": "log.level_changed", "before": before, "after": after, **ASKED}
    assert logging.getLogger().level == getattr(logging, after.upper())


@pytest.mark.parametrize(
    "body",
    [
        *({"level": "loud", **ASKED}, {"level": "info"}, {"level": "info", "by": "ann"}, {"level": "info", "why": "x"}),
        *({"level": "info", "by": "", "why": "x"}, {"level": "info", "for": "1h", **ASKED}, {}, []),
    ],
)
async def test_a_wrong_level_or_one_that_no_one_asks_for_is_refused_and_changes_nothing(body: object) -> None:
    before = logging.getLogger().level
    async with serving() as client:
        put = await client.put("/log-level", json=body)
        got = await (await client.get("/log-level")).json()

    assert put.status == 400
    assert logging.getLogger().level == before
    assert got["by"] == ""


async def test_threads_and_tasks_show_where_they_are() -> None:
    over = threading.Event()
    thread = threading.Thread(target=over.wait, name="one that waits")
    thread.start()
    task = asyncio.create_task(asyncio.Event().wait(), name="a task that waits")
    await asyncio.sleep(0)  # so that it has begun to wait
    try:
        async with serving() as client:
            found = Threads.parse(await (await client.get("/threads")).json())
    finally:
        over.set()
        thread.join()
        task.cancel()

    (calls,) = (calls for name, calls in found.threads.items() if name.startswith("one that waits "))
    assert calls[-1].endswith(" wait")
    assert any(call.endswith(" wait") for call in found.tasks["a task that waits"])
