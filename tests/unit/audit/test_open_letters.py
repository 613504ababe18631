"""Dead letters that were not sent again: their rows are on no replica, and an exact audit names them."""

from __future__ import annotations

import io
from typing import Any

import pytest
from rich.console import Console

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.streams import StreamId
from blockhouse_aggregator.audit.produced import DeadLetterLog
from blockhouse_aggregator.audit.rendering import render
from blockhouse_aggregator.audit.report import AuditReport, TableResult
from blockhouse_aggregator.kafka.dead_letters import REPLAYED, DeadLetter

STREAM = StreamId("a", "t", 0)


class Record:
    def __init__(self, offset: int, headers: list[Any]) -> None:
        self._key = f"{STREAM}/{offset}".encode()
        self._headers = headers

    def key(self) -> bytes:
        return self._key

    def headers(self) -> list[Any]:
        return self._headers


def letter(offset: int) -> Record:
    # A producer may use the name of the mark's header: it is in the letter of its message, too.
    own = ((REPLAYED, b"not a mark"),)
    return Record(offset, DeadLetter(STREAM, offset, None, b"v", own, 5, "OutOfRange", "db.t").record_headers())


def mark(offset: int) -> Record:
    return Record(offset, [(REPLAYED, b"a/t/0/99")])


def test_a_letter_is_open_until_it_is_marked_as_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    log = DeadLetterLog(KafkaCluster(name="a", bootstrap_servers="127.0.0.1:1"), "t.dead-letters", "t")
    monkeypatch.setattr(log._facts, "topic_id", lambda topic: "id")
    records = [letter(7), letter(8), mark(7), letter(9), letter(7)]
    monkeypatch.setattr(log._tail, "read", lambda: iter([(STREAM, records)]))

    log.read()

    assert log.offsets(0).tolist() == [7, 8, 9]
    assert log.open(0).tolist() == [8, 9]
    assert log.open(1).tolist() == []


def verdict(*open_letters: int) -> str:
    tables = [
        TableResult(f"db.t{n // 2}", f"r{n % 2}", True, 9, 5, 4, 5, 0, 0, 0, (), open_letters=count)
        for n, count in enumerate(open_letters)
    ]
    text = io.StringIO()
    Console(file=text, width=120).print(render(AuditReport("t", tuple(tables))))
    return text.getvalue().splitlines()[-1]


def test_an_exact_audit_names_the_letters_of_each_table_once() -> None:
    assert verdict(0, 0) == "exact: every row once on every replica"
    assert verdict(1, 1) == "exact, but for 1 dead letter that is open: blockhouse dlq list"
    assert verdict(2, 2, 1, 1) == "exact, but for 3 dead letters that are open: blockhouse dlq list"
