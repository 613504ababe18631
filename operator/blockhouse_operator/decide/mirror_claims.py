"""Two mirrors must not share the group that has their positions: each would take it over from the other, endlessly."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from blockhouse_operator.api import names
from blockhouse_operator.api.resource import KafkaMirror


@dataclass(frozen=True, slots=True)
class MirrorClaimant:
    """A mirror that can be parsed, and when it was created (RFC 3339)."""

    mirror: KafkaMirror
    created: str

    @property
    def age(self) -> tuple[str, str]:
        """Sorts older ones first; mirrors of one second by their UID."""
        return self.created, self.mirror.uid

    @property
    def claims(self) -> frozenset[tuple[str, str]]:
        """Each server of the target, and the group there."""
        servers = self.mirror.spec.target.bootstrap_servers.split(",")
        return frozenset((server.strip().lower(), names.mirror_group(self.mirror.name)) for server in servers)


def mirror_conflict(mine: MirrorClaimant, others: Sequence[MirrorClaimant]) -> str:
    """Which older mirror has the group already, in words; empty when none does."""
    for other in sorted(others, key=lambda claimant: claimant.age):
        if other.mirror.uid == mine.mirror.uid or other.age > mine.age:
            continue
        if shared := sorted(mine.claims & other.claims):
            server, group = shared[0]
            owner = f"{other.mirror.namespace}/{other.mirror.name}"
            return f"consumer group {group} at {server} belongs to the older KafkaMirror {owner}; rename this one"
    return ""
