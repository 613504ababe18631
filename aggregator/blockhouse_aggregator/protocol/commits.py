"""What became of one commit of a stream's metadata: the one answer that group member, driver and tests share.

Exactly three answers exist and must never be blurred: what is not provably applied or provably not applied is
`Unknown`. Match them with `assert_never`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Applied:
    """Offset and metadata are stored."""


@dataclass(frozen=True, slots=True)
class Refused:
    """Certainly not applied, now or later; `reason` (CamelCase) is why. `retry`: the same commit may succeed when
    it is sent again, as long as the stream is not revoked."""

    reason: str
    retry: bool = False


@dataclass(frozen=True, slots=True)
class Unknown:
    """May have been applied, or may still be on its way. The member revokes every stream at once and joins under a new
    member id, which fences the request: metadata read after the next assignment is final."""

    reason: str


CommitOutcome = Applied | Refused | Unknown

APPLIED = Applied()
STALE_EPOCH = Refused("StaleEpoch")
