"""A token that is replaced in its file counts without a restart, and the one before it for a while; so does the one of
each that only reads."""

from __future__ import annotations

import pytest

from blockhouse.errors import Permanent
from blockhouse.tokens import OVERLAP_SECONDS, READ_OVERLAP_SECONDS, Access, Tokens, read_only


class File:
    def __init__(self, text: str) -> None:
        self.text: str | None = text
        self.now = 0.0

    def read(self) -> str:
        if self.text is None:
            raise Permanent("gone", reason="SecretMissing")
        return self.text


def test_a_new_token_counts_at_once_and_the_old_one_for_a_while() -> None:
    file = File("one")
    tokens = Tokens(file.read, lambda: file.now)
    assert tokens.access("one") is Access.ALL
    assert tokens.access("two") is Access.NONE

    file.text = "two"

    assert tokens.access("two") is Access.ALL
    assert tokens.access("one") is Access.ALL
    file.now = OVERLAP_SECONDS
    assert tokens.access("one") is Access.NONE
    assert tokens.access("two") is Access.ALL


def test_a_token_before_the_last_one_is_never_accepted() -> None:
    file = File("one")
    tokens = Tokens(file.read, lambda: file.now)
    for text in ("two", "three"):
        file.text = text
        assert tokens.access(text) is Access.ALL

    assert tokens.access("one") is Access.NONE


def test_without_a_file_or_with_an_empty_one_the_last_token_stays() -> None:
    file = File("one")
    tokens = Tokens(file.read, lambda: file.now)
    for text in (None, ""):
        file.text = text
        assert tokens.access("one") is Access.ALL
        assert tokens.access("") is Access.NONE


def test_the_token_that_only_reads_is_replaced_with_the_other_one() -> None:
    file = File("one")
    tokens = Tokens(file.read, lambda: file.now)
    assert tokens.access(read_only("one")) is Access.READ
    assert tokens.access(read_only("two")) is Access.NONE

    file.text = "two"

    assert tokens.access(read_only("two")) is Access.READ
    assert tokens.access(read_only("one")) is Access.READ, "others read the new one at other moments"
    file.now = OVERLAP_SECONDS
    assert tokens.access("one") is Access.NONE
    assert tokens.access(read_only("one")) is Access.READ, "Prometheus gets it last"
    file.now = READ_OVERLAP_SECONDS
    assert tokens.access(read_only("one")) is Access.NONE
    assert tokens.access(read_only("two")) is Access.READ


def test_the_token_that_only_reads_is_the_same_in_every_version() -> None:
    """An operator of one version publishes it, programs of others accept it."""
    assert read_only("secret") == "16e6d64c2e2e3fd93e61b3fab50d2690459525bc8de346d0489e09ddc2d74943"
    assert read_only("secret ") != read_only("secret")


def test_an_empty_token_at_the_start_is_refused() -> None:
    """A request without any would have it."""
    with pytest.raises(Permanent, match="is empty") as refused:
        Tokens(lambda: "")
    assert refused.value.reason == "SecretEmpty"


def test_bytes_that_are_no_text_are_no_token() -> None:
    """aiohttp gives such a header with surrogates."""
    tokens = Tokens(lambda: "one")
    assert tokens.access(b"one\xff".decode(errors="surrogateescape")) is Access.NONE
