"""The list of dead letters in 80 columns: whole words, and keys that can be pasted."""

from __future__ import annotations

import io
from collections.abc import Set
from dataclasses import replace

from rich.console import Console

from blockhouse.streams import StreamId
from blockhouse_aggregator.dlq.letters import Letter
from blockhouse_aggregator.dlq.listing import letters_table

LETTER = Letter(
    "a/orders/1/3773@zNHl1fnCQX6rJKLs2kXX8g",
    StreamId("a", "orders", 1),
    3773,
    "UnknownColumn",
    "default.orders",
    None,
    None,
    (),
    1_700_000_000_000,
    12_345,
)


def shown(*letters: Letter, loaded: Set[str] = frozenset(), limit: int = 9) -> list[list[str]]:
    text = io.StringIO()
    Console(file=text, width=80).print(letters_table(letters, loaded, limit))
    return [line.split() for line in text.getvalue().splitlines()]


def test_a_letter_is_one_line_of_whole_words() -> None:
    head, _, line = shown(LETTER)

    assert head == ["key", "table", "reason", "time", "bytes"]
    assert line == ["a/orders/1/3773", "default.orders", "UnknownColumn", "2023-11-14", "22:13", "12345"]


def test_keys_of_one_place_are_whole() -> None:
    other = replace(LETTER, key="a/orders/1/3773@AAAAAAAAAAAAAAAAAAAAAA")

    text = "".join(line[0] for line in shown(LETTER, other)[2:])

    assert LETTER.key in text
    assert other.key in text
    assert LETTER.key in "".join(line[0] for line in shown(LETTER, other, limit=1)[2:]), "the other is not shown"


def test_what_became_of_letters_is_shown_where_there_is_something() -> None:
    again, after_all = (
        replace(LETTER, offset=5, replayed="a/orders/1/9"),
        replace(LETTER, key="a/orders/1/7@x", offset=7),
    )

    head, *lines = shown(again, after_all, loaded={after_all.key})

    assert head == ["key", "table", "reason", "time", "since", "then"]
    words = " ".join(word for line in lines for word in line)
    assert {"sent", "again", "as", "loaded", "after", "all"} <= set(words.split())
