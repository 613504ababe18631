"""How the password with which replicas fetch parts is replaced: by overlap, so that no fetch is refused. Pure.

Servers read their file at different times. So another password is first accepted by all of them, then used by all, and
only then the former one ends: each step waits until every server must have read the file of the step before.
"""

from __future__ import annotations

from blockhouse_operator.decide.credentials import OVERLAP_SECONDS
from blockhouse_operator.desired.parts_login import PartsLogin


def replaced(published: PartsLogin | None, given: str, *, waited: float, everywhere: bool) -> PartsLogin:
    """What servers shall have, given what they have had for `waited` seconds and the password that is `given` now.
    Unless the file is read `everywhere`, the present password stays in use: some server knows no other one."""
    if published is None:
        return PartsLogin(given)
    if given != published.used and given not in published.accepted:
        return PartsLogin(published.used, (given, *published.accepted))
    if waited < OVERLAP_SECONDS or not everywhere:
        return published
    if given != published.used:
        others = (each for each in published.accepted if each != given)
        return PartsLogin(given, (published.used, *others))
    return PartsLogin(given)


def rests(published: PartsLogin | None, given: str) -> bool:
    """Whether no replacement is under way."""
    return published in (None, PartsLogin(given))
