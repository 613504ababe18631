"""That a replica's aggregator is drained: it owns no stream until a person lets it resume, also when it starts again.

    <root>/drains/<shard>/<replica>    {"by": ..., "why": ..., "since_ms": ...}

It never expires by itself: who drained it lets it resume, and until then its status page states why.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, ValidationError

from blockhouse.errors import Permanent
from blockhouse_aggregator.coordination.session import Session


class Drain(BaseModel):
    """Who drained the aggregator and why, since when in Unix milliseconds."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may know more

    by: str
    why: str
    since_ms: int


class ReplicaDrain:
    """Of one replica. Thread-safe. Raises Retryable while ZooKeeper is unavailable, Permanent for garbage."""

    def __init__(self, session: Session, shard: str, replica: str) -> None:
        self._znodes = session.znodes
        self._path = session.path("drains", shard, replica)

    def get(self) -> Drain | None:
        """None: it is not drained."""
        node = self._znodes.get(self._path)
        if node is None:
            return None
        try:
            return Drain.model_validate_json(node.data)
        except ValidationError as error:
            raise Permanent(f"zookeeper {self._path}: not a drain: {error}", reason="DrainUnreadable") from error

    def put(self, drain: Drain) -> Drain:
        """Record it unless there is one; returns the one that counts."""
        self._znodes.create(self._path, drain.model_dump_json().encode())
        return self.get() or drain

    def remove(self) -> bool:
        """False: there was none."""
        return self._znodes.delete(self._path)
