"""Claims that were found to be undisputed while every namespace could be read.

A namespace that cannot be read later must neither stop what runs nor let through what is new.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from blockhouse_operator.api.conditions import Condition, ConditionType, Reason
from blockhouse_operator.decide.claims import Claim, undecided

REFUSED = frozenset(reason.value for reason in (Reason.CLAIM_CONFLICT, Reason.CLAIMS_UNKNOWN, Reason.INVALID_SPEC))


class Undisputed:
    """By the UID of a resource. What an earlier process found is in the resource's own status."""

    def __init__(self) -> None:
        self._known: dict[str, frozenset[Claim]] = {}

    def judge(
        self, uid: str, claims: frozenset[Claim], conflict: str, unread: Collection[str], *, accepted: bool
    ) -> str:
        """Why it is not decided whether the resource may have its claims; empty where it is. `accepted`: its status
        shows that its spec, as it is, was found to be undisputed before."""
        if conflict:
            self._known.pop(uid, None)
            return ""
        known = self._known.get(uid, claims if accepted else frozenset())
        if why := undecided(claims, known, unread):
            return why
        self._known[uid] = claims
        return ""


def accepted_before(conditions: Sequence[Condition], observed: int | None, generation: int) -> bool:
    """Whether a status is about the spec as it is, and states no refusal of it."""
    ready = next((each for each in conditions if each.type == ConditionType.READY.value), None)
    return observed == generation and ready is not None and ready.reason not in REFUSED
