"""The secrets that a pipeline makes for itself, as a value. Nothing of it may be shown: `repr` has none of them."""

from __future__ import annotations

from dataclasses import dataclass

from blockhouse.tokens import read_only

USERS = ("cluster", "cluster-b")
"""Users with which replicas query each other, by turns: ClickHouse 18.16 knows one password a user. No user of a spec
can have the name of the second one."""
ACCEPTED, USED = "Accepted", "Used"
"""Steps of a rotation: the new ones are accepted; they are used."""


@dataclass(frozen=True, slots=True)
class Credentials:
    """`token` is that of the admin APIs, `former_token` the one before it while they change. `passwords` are those of
    USERS, empty for one that does not exist; `active` is the number of the one in use. `demand` is the last demand to
    rotate that was followed, `step` where that is, since Unix time `since`. `salt` keys the hashes of other Secrets'
    contents, and stays."""

    token: str
    passwords: tuple[str, str]
    former_token: str = ""
    active: int = 0
    demand: str = ""
    step: str = ""
    since: float = 0.0
    salt: str = ""

    def __repr__(self) -> str:
        return f"Credentials(active={USERS[self.active]}, demand={self.demand!r}, step={self.step!r})"

    @property
    def of_cluster(self) -> dict[str, str]:
        """Passwords by user: first the one that is used, then the other one that is accepted."""
        order = (self.active, 1 - self.active)
        return {USERS[number]: self.passwords[number] for number in order if self.passwords[number]}

    @property
    def reading(self) -> tuple[str, ...]:
        """Tokens that only read: first the one to use, which stays that of the former token until every program must
        have read the new one, then the other one that is accepted."""
        order = (self.former_token, self.token) if self.step == ACCEPTED else (self.token, self.former_token)
        return tuple(read_only(token) for token in order if token)
