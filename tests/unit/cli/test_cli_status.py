"""`blockhouse status`: what is asked, what is shown in 80 columns, and what the exit code means."""

from __future__ import annotations

import io
import json
import socket
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web
from prometheus_client import CollectorRegistry
from rich.console import Console

from blockhouse import cli
from blockhouse.admin_client import AdminAccess
from blockhouse.cli.status import ask_all, exit_code
from blockhouse.cli.status_view import Asked, Found, History, render
from blockhouse.contract.aggregator import (
    STATUS,
    LaggingTable,
    Phase,
    Standing,
    StatusPage,
    StopReason,
)
from blockhouse.contract.notices import StartWait, TableLetters
from blockhouse.serving import Answer, HttpServer, respond, route
from tests.contract_values import page, stream

STILL = Standing(reason="TaskSilent", text="its Spark task has been silent for 9 s", since_ms=1_790_000_000_000)


class Server(HttpServer):
    def __init__(self, shown: StatusPage, token: str) -> None:
        super().__init__("127.0.0.1", 0, CollectorRegistry(), token=(lambda: token) if token else None)
        self._shown = shown

    def health(self) -> Answer:
        return Answer(True, "ok")

    def readiness(self) -> Answer:
        return Answer(True, "ready")

    def routes(self) -> Iterable[web.RouteDef]:
        async def status(_: web.Request) -> web.Response:
            return respond(self._shown)

        return [route(STATUS, status)]


@asynccontextmanager
async def served(shown: StatusPage, token: str = "") -> AsyncIterator[str]:
    server = Server(shown, token)
    await server.start()
    yield f"127.0.0.1:{server.port}"
    await server.stop()


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def shown(*asked: Asked, history: History | None = None, width: int = 80) -> str:
    text = io.StringIO()
    Console(file=text, width=width).print(render(Found(asked), history))
    return text.getvalue()


async def test_all_are_asked_and_one_that_does_not_answer_hides_no_other() -> None:
    fine = page(stream("a/t/0", lag=0))
    async with served(fine) as address:
        gone = f"127.0.0.1:{free_port()}"
        found, silent = await ask_all([f"http://{address}/", gone], AdminAccess())
    assert (found.page, found.error) == (fine, "")
    assert silent.page is None
    assert exit_code(Found([found, silent])) == 3
    assert exit_code(Found([found])) == 0
    assert f"{gone} does not answer: connection refused\n" in shown(found, silent, width=200)


async def test_a_token_is_sent_and_its_absence_is_named(tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("secret-token\n")
    async with served(page(), token="secret-token") as address:
        (without,) = await ask_all([address], AdminAccess())
        (found,) = await ask_all([address], AdminAccess(token_file=token))
    assert "--token-file" in without.error
    assert found.page == page()


async def test_what_is_no_aggregator_is_named() -> None:
    async with served(page()) as address:
        (found,) = await ask_all([f"http://{address}/healthz?"], AdminAccess())
    assert found.page is None
    assert found.error


@pytest.mark.parametrize(
    ("address", "why"),
    [
        ("127.0.0.1:{silent}", "no answer in 0.3 s"),
        ("https://127.0.0.1:{port}", "TLS failed: WRONG_VERSION_NUMBER"),
        ("http://127.0.0.1:{port}/elsewhere", "it answers 404 Not Found"),
        ("http://[::1", "no valid address"),
    ],
)
async def test_why_one_does_not_answer_is_in_words(address: str, why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("blockhouse.cli.status.TIMEOUT", 0.3 if "silent" in address else 4.0)
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        async with served(page()) as answering:
            port = answering.rpartition(":")[2]
            (found,) = await ask_all([address.format(port=port, silent=silent.getsockname()[1])], AdminAccess())
    assert found.page is None
    assert why in found.error
    assert "ssl:default" not in found.error


STOPPED = stream(state=Phase.STOPPED, stopped=StopReason(reason="OffsetsReset", message="m"))
WAITS = stream(lagging=(LaggingTable(table="db.t", cursor=3, pending=2, reason="UnknownTable", since_ms=1),))
CATCHES_UP = stream(lagging=(LaggingTable(table="db.t", cursor=3, pending=2, reason="CatchingUp", since_ms=1),))


@pytest.mark.parametrize(
    ("found", "code", "line"),
    [
        (page(stream()), 0, ""),
        (page(CATCHES_UP), 0, ""),
        (page(stream(standing=STILL)), 1, "stands still since 2026-09-21T"),
        (page(STOPPED), 1, "a/t/0 is stopped: OffsetsReset"),
        (page(WAITS), 1, "a/t/0 db.t: 2 messages wait since 1970-01-01T00:00:00Z: UnknownTable"),
        (page(away="replica: read-only"), 1, "stays out of its consumer groups: replica: read-only"),
        (page(unfit="no answer for 5 s"), 1, "r1: its ClickHouse takes no rows: no answer for 5 s"),
        (page(clusters={"a": "down"}), 3, "Kafka cluster a: down"),
    ],
)
def test_the_exit_code_and_the_lines_about_what_needs_a_person(found: StatusPage, code: int, line: str) -> None:
    asked = Asked("here:1", found, "")
    assert exit_code(Found([asked])) == code
    text = shown(asked, width=300)
    assert line in text
    of_a_stream = code == 1 and "a/t/0" in text
    assert ("stands still" in text or "stopped" in text or "wait" in text) == of_a_stream


def test_it_fits_80_columns_and_cuts_no_name() -> None:
    name = "production-east/orders-of-a-rather-long-topic-name-01/127"
    text = shown(Asked("here:1", page(stream(name, lag=123_456, lag_seconds=12.34)), ""))
    assert max(map(len, text.splitlines())) <= 80
    column = "".join(line.split("│")[1].strip() for line in text.splitlines() if line.count("│") > 8)
    assert name in column


def test_what_is_not_known_is_not_shown_as_nothing() -> None:
    text = shown(Asked("here:1", page(stream(lag=None)), ""), width=120)
    row = next(line for line in text.splitlines() if "a/t/0" in line)
    assert "?" in row


@pytest.mark.parametrize(
    ("ages", "behind"),
    [
        ([0.0, 0.0], "0.0 s"),
        ([0.0, None], "?"),
        ([None], "?"),
        ([3.0, None], "3.0 s ?"),
        ([3.0, 1.0], "3.0 s"),
        ([], ""),
    ],
)
def test_an_aggregator_is_behind_by_its_oldest_stream_and_one_of_unknown_age_is_not_taken_for_new(
    ages: list[float | None], behind: str
) -> None:
    streams = [stream(f"a/t/{number}", lag_seconds=age) for number, age in enumerate(ages)]
    text = shown(Asked("here:1", page(*streams), ""), width=120)
    row = next(line for line in text.splitlines() if "ready" in line)
    assert row.split("│")[-2].strip() == behind


@pytest.mark.parametrize(
    ("changes", "state"),
    [({}, "ready"), ({"unfit": "read-only"}, "unfit"), ({"unfit": "read-only", "away": "replica: read-only"}, "out")],
)
def test_an_aggregator_whose_replica_takes_no_rows_is_not_called_ready(changes: dict[str, str], state: str) -> None:
    text = shown(Asked("here:1", page(**changes), ""), width=120)
    row = next(line for line in text.splitlines() if "│ r1 " in line)
    assert row.split("│")[4].strip() == state


def test_a_sparkline_has_the_last_lags() -> None:
    history = History()
    for lag in (0, 50, 100):
        history.add([Asked("here:1", page(stream(lag=lag)), "")])
    assert history.spark("a/t/0") == "▁▄█"
    assert "▁▄█" in shown(Asked("here:1", page(stream(lag=100)), ""), history=history, width=120)


def test_json_names_what_does_not_answer(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["status", f"127.0.0.1:{free_port()}", "--json"])
    assert ended.value.code == 3
    (only,) = json.loads(capsys.readouterr().out)["aggregators"]
    assert only["status"] is None
    assert only["error"]


def test_a_pipeline_in_kubernetes_is_asked_by_the_operators_client(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Core knows no Kubernetes: without a way to an API server that is one line."""
    with pytest.raises(SystemExit) as ended:
        cli.main(["status", "--pipeline", "events", "--kubeconfig", str(tmp_path / "none")])
    assert ended.value.code == 1
    assert capsys.readouterr().err.startswith("error: no way to a Kubernetes API server")


def test_a_pipeline_and_addresses_are_not_asked_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        cli.main(["status", "events-0:8080", "--pipeline", "events"])
    assert ended.value.code == 2


def test_dead_letters_are_named_once_for_a_table_and_change_no_exit_code() -> None:
    def letters(table: str, messages: int, last_ms: int, reason: str) -> TableLetters:
        return TableLetters(table=table, messages=messages, last_ms=last_ms, reason=reason, offset=7, detail="")

    old, new = 1_790_000_000_000, 1_790_000_060_000
    first = page(
        stream("a/t/0", lag=0, letters=(letters("db.t", 3, new, "NotADecimal"), letters("", 1, old, "NoTableHeader")))
    )
    second = page(stream("a/t/1", lag=0, letters=(letters("db.t", 1, old, "UnknownColumn"),)))
    asked = [Asked("r1", first, ""), Asked("r2", second, "")]

    text = shown(*asked, width=200)
    assert (
        "4 dead letters of db.t, the last at 2026-09-21T14:14:20Z (NotADecimal): blockhouse dlq list --table db.t\n"
        in text
    )
    assert "1 dead letter of no table, the last at 2026-09-21T14:13:20Z (NoTableHeader): blockhouse dlq list\n" in text
    assert exit_code(Found(asked)) == 0
    assert "dead letter" not in shown(Asked("r1", page(stream("a/t/0", lag=0)), ""))


def test_one_that_starts_names_what_it_waits_for_and_is_not_well() -> None:
    waits = StartWait(what="catalog", since_ms=1_790_000_000_000, error="ClickHouse error 192: Unknown user loader")
    one = Asked("r1", page(ready=False, waits=waits), "")
    text = (
        "r1 is starting and waits for catalog since 2026-09-21T14:13:20Z: ClickHouse error 192: Unknown user loader\n"
    )
    assert text in shown(one, width=200)
    assert exit_code(Found([one])) == 1
    bare = Asked("r1", page(ready=False), "")
    assert "r1 is starting\n" in shown(bare)
    assert exit_code(Found([bare])) == 1


def test_a_stream_without_an_owner_is_shown_and_is_not_well() -> None:
    known = {"a/t": 2, "b/t": 1}
    first = Asked("r1", page(stream("a/t/0", lag=0), partitions={"a/t": 1}), "")
    second = Asked("r2", page(stream("b/t/0", lag=0), partitions=known, replica="r2"), "")
    text = shown(first, second, width=200)

    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in text.splitlines() if line[:1] == "│"]
    assert ["p", "0", "-", "unowned", "1", "?", "?"] in rows
    assert ["a/t/1", "-", "unowned", "?", "?", "?", "?", "?"] in rows
    assert "1 stream without an owner (-) among the 2 of 2 aggregators that answered\n" in text
    assert exit_code(Found([first, second])) == 3
    assert Found([first, second]).written()["unowned"] == [{"pipeline": "p", "shard": "0", "stream": "a/t/1"}]
    # another shard's stream of the same name is another one
    other = Asked("r3", page(stream("a/t/1", lag=0), shard="1", partitions={"a/t": 1}), "")
    assert [each.stream for each in Found([first, second, other]).unowned if each.shard == "0"] == ["a/t/1"]
    whole = Asked("r2", page(stream("b/t/0", lag=0), stream("a/t/1", lag=0), partitions=known, replica="r2"), "")
    assert Found([first, whole]).unowned == []
    assert exit_code(Found([first, whole])) == 0


def test_no_lag_of_0_is_claimed_while_a_kafka_cluster_does_not_answer() -> None:
    silent = Asked(
        "r1", page(stream("b/t/0", lag=0, lag_seconds=0.0), clusters={"a": "no broker answers", "b": "ok"}), ""
    )
    rows = [[cell.strip() for cell in line.strip("│").split("│")] for line in shown(silent).splitlines()]
    assert ["p", "0", "r1", "ready", "1", "0 ?", "?"] in rows
