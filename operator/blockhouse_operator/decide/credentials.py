"""The secrets that a pipeline makes for itself, and how they are replaced: by overlap, so that nothing restarts. Pure.

First the new ones are accepted beside the old, then they are used, then the old ones end. A step waits until every
server must have read the files of the step before: the kubelet brings them within a minute or two.
"""

from __future__ import annotations

from dataclasses import replace

from blockhouse_operator.desired.credentials import ACCEPTED, USED, Credentials

OVERLAP_SECONDS = 180.0


def rotated(
    now: Credentials, demand: str, at: float, fresh: tuple[str, str], *, waited: float, password: bool = True
) -> Credentials:
    """The credentials after the step that is due at Unix time `at`, if one is.

    `waited`: seconds for which the present step has been seen. Not by its time, which another operator's clock gave.
    `demand` is what is asked for: another one than the last begins a rotation, an empty one none. `fresh` are a new
    token and a new password. Without `password` only the token is replaced.
    """
    if not now.step:
        if not demand or demand == now.demand:
            return now
        passwords = _with(now.passwords, 1 - now.active, fresh[1]) if password else now.passwords
        begun = replace(now, token=fresh[0], former_token=now.token, passwords=passwords)
        return replace(begun, demand=demand, step=ACCEPTED, since=at)
    if waited < OVERLAP_SECONDS:
        return now
    other = 1 - now.active
    if now.step == ACCEPTED:
        active = other if now.passwords[other] else now.active
        return replace(now, active=active, step=USED, since=at)
    return replace(now, former_token="", passwords=_with(now.passwords, other, ""), step="", since=at)


def _with(passwords: tuple[str, str], number: int, value: str) -> tuple[str, str]:
    return (value, passwords[1]) if number == 0 else (passwords[0], value)
