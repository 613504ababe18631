"""The three ways in which work can fail, in whatever program.

Every adapter turns its client's errors into one of these; nothing above an adapter knows a client's exceptions.
"""

from __future__ import annotations


class BlockhouseError(Exception):
    """Base of all errors a user may see: the text has what happened, to which object, and what to do.

    `reason` is CamelCase, for conditions, metrics and code that distinguishes errors; empty where there is only the
    text. `code` is the server's own number, where a server refused.
    """

    def __init__(self, message: str, *, reason: str = "", code: int | None = None) -> None:
        super().__init__(message)
        self.reason = reason
        self.code = code


class Retryable(BlockhouseError):
    """The same request may succeed later; `after` is the least wait in seconds.

    `fault` is what is at fault (`resend`, `replica`, `shard`: see `clickhouse.errors.Fault`), empty where that is not
    known: only a fault of the replica itself counts towards handing its streams over.
    """

    fault: str = ""

    def __init__(self, message: str, *, after: float = 0.2, reason: str = "", code: int | None = None) -> None:
        super().__init__(message, reason=reason, code=code)
        self.after = after


class Overdue(Retryable):
    """What was waited for did not come within the time for it."""


class Permanent(BlockhouseError):
    """The same request can never succeed: the caller has to change something. `reason` is never empty."""

    def __init__(self, message: str, *, reason: str, code: int | None = None) -> None:
        super().__init__(message, reason=reason, code=code)


class Blocked(BlockhouseError):
    """Work must stop until a person decides: continuing could lose or double rows. `reason` is never empty."""

    def __init__(self, message: str, *, reason: str) -> None:
        super().__init__(message, reason=reason)
