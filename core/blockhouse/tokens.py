"""The tokens of an HTTP API: one that may ask for everything, one that only reads, and for a while those before them.

The one that only reads follows from the other, so that no program needs a second secret and both are replaced at once.
"""

from __future__ import annotations

import hmac
import time
from collections.abc import Callable
from enum import Enum

from blockhouse.errors import Permanent

OVERLAP_SECONDS = 300.0
"""How long a token that was replaced is accepted: others read the new one at other moments."""
READ_OVERLAP_SECONDS = 900.0
"""The same of the one that only reads: Prometheus gets the new one last, and by several hands."""
_PURPOSE = b"blockhouse read-only token"


class Access(Enum):
    """What a token allows."""

    NONE = "none"
    READ = "read"
    ALL = "all"


def read_only(token: str) -> str:
    """The token that only reads, of the one that may ask for everything: 64 hexadecimal digits, the same in every
    version. It shows no more of a random token than a hash does; one that a person thought up can be guessed by it."""
    return hmac.new(token.encode(), _PURPOSE, "sha256").hexdigest()


class Tokens:
    """The token that a file has now, and for a while the one that it had before: one is replaced without a restart.

    `read` gives the present one, as `SecretRef.read` does; while it cannot, the last one stays. Raises Permanent when
    there is none at the start, or an empty one.
    """

    def __init__(self, read: Callable[[], str], clock: Callable[[], float] = time.monotonic) -> None:
        self._read = read
        self._clock = clock
        self._present = read()
        if not self._present:  # it would allow everything to a client that sends no token
            raise Permanent("the admin token is empty: put one into its file or variable", reason="SecretEmpty")
        self._former: tuple[str, float] | None = None

    def access(self, given: str) -> Access:
        """What `given` allows at this moment."""
        self._look()
        if any(_same(given, token) for token in self._accepted(OVERLAP_SECONDS)):
            return Access.ALL
        reading = map(read_only, self._accepted(READ_OVERLAP_SECONDS))
        return Access.READ if any(_same(given, token) for token in reading) else Access.NONE

    def _accepted(self, overlap: float) -> tuple[str, ...]:
        """The present one, and the former one for `overlap` seconds."""
        if self._former is None or self._clock() >= self._former[1] + overlap:
            return (self._present,)
        return (self._present, self._former[0])

    def _look(self) -> None:
        try:
            present = self._read()
        except Permanent:
            present = self._present
        if present and present != self._present:
            self._former = (self._present, self._clock())
            self._present = present


def _same(given: str, token: str) -> bool:
    return hmac.compare_digest(given.encode(errors="surrogateescape"), token.encode())
