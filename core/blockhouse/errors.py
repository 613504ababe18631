"""The three ways in which work can fail, whoever does it.

Every adapter turns its client's errors into one of these; nothing above an adapter knows a client's exceptions.
"""

from __future__ import annotations


class BlockhouseError(Exception):
    """Base of all errors a user may see: the text says what happened, to which object, and what to do."""


class Retryable(BlockhouseError):
    """The same request may succeed later; `after` is the least wait in seconds."""

    def __init__(self, message: str, *, after: float = 0.2, code: int | None = None) -> None:
        super().__init__(message)
        self.after = after
        self.code = code


class Permanent(BlockhouseError):
    """The same request can never succeed: whoever asked has to change something. `reason` is CamelCase."""

    def __init__(self, message: str, *, reason: str, code: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = code


class Blocked(BlockhouseError):
    """Work must stop until somebody decides: going on by itself could lose or double rows."""

    def __init__(self, message: str, *, on: str) -> None:
        super().__init__(message)
        self.on = on
