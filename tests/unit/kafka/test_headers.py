"""Headers that the client cannot read concern one message: its neighbours are read as ever."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from blockhouse_aggregator.blocks.routing import Misrouted, Route, Router
from blockhouse_aggregator.kafka.headers import UNREADABLE, headers_of, runs


@dataclass
class Message:
    found: list[tuple[str, bytes | None]] | None
    error: Exception | None = None

    def headers(self) -> list[tuple[str, bytes | None]] | None:
        """As the client does it: raises once, and what it returns the next time must not be read."""
        error, self.error = self.error, None
        if error is not None:
            self.found = [("a hole that crashes", None)]
            raise error
        return self.found

    def set_headers(self, value: list[tuple[str, bytes | None]], /) -> None:
        self.found = value


GOOD: list[tuple[str, bytes | None]] = [("table", b"db.t"), ("format", b"json")]
ERRORS = [UnicodeDecodeError("utf-8", b"\xe9", 0, 1, "unexpected end of data"), SystemError("error return")]


@pytest.mark.parametrize("error", ERRORS, ids=lambda error: type(error).__name__)
def test_a_message_whose_headers_cannot_be_read_is_a_run_of_its_own(error: Exception) -> None:
    messages = [Message(GOOD), Message(GOOD), Message(None, error), Message(GOOD)]
    assert [(headers, len(run)) for headers, run in runs(messages)] == [(GOOD, 2), (UNREADABLE, 1), (GOOD, 1)]


def test_it_may_be_asked_again() -> None:
    message = Message(None, ERRORS[1])
    assert [headers_of(message), headers_of(message)] == [UNREADABLE, UNREADABLE]


def test_messages_with_equal_headers_are_one_run_and_none_means_none() -> None:
    assert [(headers, len(run)) for headers, run in runs([Message(None), Message([]), Message(GOOD)])] == [
        ((), 2),
        (GOOD, 1),
    ]


def test_any_other_error_is_not_hidden() -> None:
    with pytest.raises(RuntimeError):
        headers_of(Message(None, RuntimeError("not a matter of names")))


def test_unreadable_headers_have_a_reason_of_their_own() -> None:
    router = Router("db")
    assert router.route(UNREADABLE) == Misrouted("", "BadHeaders")
    assert isinstance(router.route(GOOD), Route)
