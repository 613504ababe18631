"""Tables of a shard that a rollout pauses: nothing of them is sealed or sent by any replica until they are released.

Durable, for a pause must outlive the aggregator that was asked for it, and every replica of the shard obeys it:

    <root>/holds/<shard>/<table>    {"rollout": ..., "since_ms": ...}

It never expires by itself: the rollout that began it ends it, and until then every status page shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import unquote

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from blockhouse.errors import Blocked, Permanent
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.coordination.znodes import Znode


class Pause(BaseModel):
    """Who pauses a table (`rollout` is their name for what they do), since when in Unix milliseconds."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may know more

    rollout: str = Field(min_length=1, max_length=200)
    since_ms: int


class TablePauses:
    """The pauses of one shard. Thread-safe. Raises Retryable while ZooKeeper is unavailable."""

    def __init__(self, session: Session, shard: str) -> None:
        self._session = session
        self._shard = shard
        self._znodes = session.znodes
        self._root = session.path("holds", shard)

    def all(self) -> Mapping[str, Pause]:
        """By `database.table`."""
        names = [unquote(node) for node in self._znodes.children(self._root)]
        nodes = self._znodes.get_many([self._path(name) for name in names])
        return {name: self._parse(name, node) for name, node in zip(names, nodes, strict=True) if node is not None}

    def put(self, table: str, pause: Pause) -> Pause:
        """Pause the table; returns the pause that counts, which is an older one of the same rollout if there is one.

        Raises Blocked(reason="HeldByOther") when another rollout pauses the table.
        """
        if self._znodes.create(self._path(table), pause.model_dump_json().encode()):
            return pause
        node = self._znodes.get(self._path(table))
        if node is None:
            return self.put(table, pause)  # released in this moment
        found = self._parse(table, node)
        if found.rollout != pause.rollout:
            raise Blocked(
                f"table {table} of shard {self._shard} is paused by rollout {found.rollout}", reason="HeldByOther"
            )
        return found

    def remove(self, table: str, rollout: str) -> bool:
        """Release the table; False when it was not paused. Raises Blocked(reason="HeldByOther") as `put` does."""
        node = self._znodes.get(self._path(table))
        if node is None:
            return False
        found = self._parse(table, node)
        if found.rollout != rollout:
            raise Blocked(
                f"table {table} of shard {self._shard} is paused by rollout {found.rollout}", reason="HeldByOther"
            )
        return self._znodes.delete(self._path(table), node.version)

    def _path(self, table: str) -> str:
        return self._session.path("holds", self._shard, table)

    def _parse(self, table: str, node: Znode) -> Pause:
        try:
            return Pause.model_validate_json(node.data)
        except ValidationError as error:
            raise Permanent(f"zookeeper {self._path(table)}: not a pause: {error}", reason="HoldUnreadable") from error
