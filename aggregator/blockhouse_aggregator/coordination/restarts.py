"""How often the aggregators of a shard have been asked to restart, so that each knows whether it has since.

    <root>/restarts/<shard>    {"number": 3, "rollout": ..., "since_ms": ...}

A number and not a time: an aggregator remembers the number it found at its start, and no clock decides. It only grows.
"""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from blockhouse.errors import Permanent
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.coordination.znodes import VersionConflict, Znode


class RestartDemand(BaseModel):
    """The `number`-th demand, by which rollout, since when in Unix milliseconds. Number 0: there was none."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may know more

    number: int = Field(default=0, ge=0)
    rollout: str = ""
    since_ms: int = 0


class RestartDemands:
    """The demands on one shard. Thread-safe. Raises Retryable while ZooKeeper is unavailable."""

    def __init__(self, session: Session, shard: str) -> None:
        self._znodes = session.znodes
        self._path = session.path("restarts", shard)

    def latest(self) -> RestartDemand:
        """The last demand."""
        node = self._znodes.get(self._path)
        return self._parse(node) if node is not None else RestartDemand()

    def add(self, rollout: str, since_ms: int) -> RestartDemand:
        """Ask every aggregator that runs now to restart; returns the demand."""
        while True:
            node = self._znodes.get(self._path)
            known = self._parse(node) if node is not None else RestartDemand()
            added = RestartDemand(number=known.number + 1, rollout=rollout, since_ms=since_ms)
            data = added.model_dump_json().encode()
            if node is None:
                if self._znodes.create(self._path, data):
                    return added
                continue  # another process was first: read again
            try:
                self._znodes.write(self._path, data, node.version)
            except VersionConflict:
                continue
            return added

    def _parse(self, node: Znode) -> RestartDemand:
        try:
            return RestartDemand.model_validate_json(node.data)
        except ValidationError as error:
            text = f"zookeeper {self._path}: not a demand to restart: {error}"
            raise Permanent(text, reason="RestartUnreadable") from error
