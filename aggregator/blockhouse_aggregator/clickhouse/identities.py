"""Which replicas of a shard recognise a block by its token: a block may have been sent to any of them.

    <root>/identities/<shard>/<replica's name in ClickHouse>    {"tokens": true, "since_ms": 1764057600000}

A node is written only when its replica's server changes: tokens come and go with a restart, so `since_ms` is the start
of the server that was found then (Unix milliseconds of its clock). It must never answer "token" or "content" for a
shard in which one replica may differ.
"""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import BaseModel, ConfigDict, ValidationError

from blockhouse_aggregator.clickhouse.tables import By, Identity
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.coordination.znodes import VersionConflict, Znode


class _Recorded(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may know more

    tokens: bool
    since_ms: int


class Identities:
    """Of one shard's replicas. Thread-safe. Raises Retryable while ZooKeeper is unavailable."""

    def __init__(self, session: Session, shard: str) -> None:
        self._znodes = session.znodes
        self._session = session
        self._shard = shard

    def of(self, table_path: str, replica: str, *, tokens: bool, started_ms: int) -> Identity:
        """What blocks of the table at `table_path` are recognised by; records that `replica`, whose server was started
        at `started_ms`, has `tokens` now."""
        self._record(replica, _Recorded(tokens=tokens, since_ms=started_ms))
        names = self._znodes.children(f"{table_path}/replicas")
        return weakest(self._znodes.get_many([self._path(name) for name in names]), tokens=tokens)

    def _record(self, replica: str, now: _Recorded) -> None:
        path = self._path(replica)
        found = self._znodes.get(path)
        known = _read(found) if found is not None else None
        if known is not None and known.tokens is now.tokens:
            return
        data = now.model_dump_json().encode()
        if found is not None:
            self._znodes.write(path, data, found.version)
        elif not self._znodes.create(path, data):
            raise VersionConflict(f"zookeeper {path}: another process of this replica was first", after=0.1)

    def _path(self, replica: str) -> str:
        return self._session.path("identities", self._shard, replica)


def weakest(replicas: Sequence[Znode | None], *, tokens: bool) -> Identity:
    """`replicas` are the nodes of all replicas of a table, None for one that has recorded nothing; `tokens` is what the
    local one has.

    A replica of which nothing is known has an aggregator of a version before this one, or none. Where the local server
    has no tokens it is taken to be like it, as it always was. A node that was never changed records nothing of the time
    before.
    """
    known = [(node, _read(node)) for node in replicas if node is not None]
    alike = [(node, recorded) for node, recorded in known if recorded is not None and recorded.tokens is tokens]
    if len(alike) < len(known) or (tokens and len(known) < len(replicas)):
        return Identity(By.NOTHING)
    since_ms = max((recorded.since_ms for node, recorded in alike if tokens or node.version > 0), default=0)
    return Identity(By.TOKEN if tokens else By.CONTENT, since_ms)


def _read(node: Znode) -> _Recorded | None:
    """None for a node that this version cannot read: it is like no other."""
    try:
        return _Recorded.model_validate_json(node.data)
    except ValidationError:
        return None
