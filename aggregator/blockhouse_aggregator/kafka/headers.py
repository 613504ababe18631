"""The headers of a message, also of one whose headers the client cannot read.

In Kafka a header's name may be any bytes, and some producers write names that are not UTF-8: confluent-kafka raises
when it is asked for such headers the first time, and the second time returns a list with a hole in it that crashes the
process. So nothing else may call `Message.headers()` of a message that was read from a topic of a pipeline, and what is
here never raises for a name: one message would stop its stream. A name with a NUL byte is cut there by the client,
which cannot be noticed here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from enum import Enum
from itertools import groupby, islice
from operator import itemgetter, methodcaller
from typing import Any, Final, Protocol, TypeVar

_headers, _first = methodcaller("headers"), itemgetter(0)
_RAISED = (ValueError, SystemError)
"""By the client, for a name that is not UTF-8: it leaves an exception set behind a result."""
_MARK: Final[list[tuple[str, bytes | None]]] = []
"""The headers that an unreadable message is given, so that asking again is safe; recognised by identity."""


class Unreadable(Enum):
    """In place of headers that the client cannot read."""

    HEADERS = "headers"


UNREADABLE: Final = Unreadable.HEADERS
Headers = Sequence[tuple[str, bytes | None]]


class HasHeaders(Protocol):
    """A message; confluent_kafka.Message is one, which declares more kinds of headers than it returns."""

    def headers(self) -> Any: ...
    def set_headers(self, headers: Any, /) -> None: ...


M = TypeVar("M", bound=HasHeaders)


def headers_of(message: HasHeaders) -> Headers | Unreadable:
    """The message's headers, empty where it has none."""
    return _each([message])[0]


def runs(messages: Sequence[M]) -> Iterator[tuple[Headers | Unreadable, list[M]]]:
    """The messages in order, in runs of neighbours with equal headers."""
    for headers, pairs in groupby(zip(_each(messages), messages, strict=True), _first):
        yield headers, [message for _, message in pairs]


def _each(messages: Sequence[HasHeaders]) -> list[Headers | Unreadable]:
    """The headers of every message; no Python code runs per message but for unreadable ones."""
    found: list[list[tuple[str, bytes | None]] | None] = []
    while len(found) < len(messages):
        try:
            found.extend(map(_headers, islice(messages, len(found), None)))  # keeps what came before an exception
        except _RAISED:
            messages[len(found)].set_headers(_MARK)
            found.append(_MARK)
    return [UNREADABLE if headers is _MARK else headers or () for headers in found]
