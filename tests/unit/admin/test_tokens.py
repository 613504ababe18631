"""A token that is replaced in its file counts without a restart, and the one before it for a while."""

from __future__ import annotations

from blockhouse.errors import Permanent
from blockhouse.serving import OVERLAP_SECONDS, Tokens


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
    assert tokens.accept("one")
    assert not tokens.accept("two")

    file.text = "two"

    assert tokens.accept("two")
    assert tokens.accept("one")
    file.now = OVERLAP_SECONDS
    assert not tokens.accept("one")
    assert tokens.accept("two")


def test_a_token_before_the_last_one_is_never_accepted() -> None:
    file = File("one")
    tokens = Tokens(file.read, lambda: file.now)
    for text in ("two", "three"):
        file.text = text
        assert tokens.accept(text)

    assert not tokens.accept("one")


def test_without_a_file_or_with_an_empty_one_the_last_token_stays() -> None:
    file = File("one")
    tokens = Tokens(file.read, lambda: file.now)
    for text in (None, ""):
        file.text = text
        assert tokens.accept("one")
        assert not tokens.accept("")
