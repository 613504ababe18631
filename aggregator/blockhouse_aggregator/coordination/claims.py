"""Which pipelines load a table, by what their rows name: rows that nothing separates must not be in one table.

Two pipelines, or a pipeline and its successor under another group, may have messages of the same cluster, partition and
offset. The rows of one would then answer for blocks of the other. So each claims the table before its first insert.

    /blockhouse/tables/<path of the table in ZooKeeper>/claims
        {"czxid": 4711, "claimants": {"/blockhouse shard 01 group g": {"topics": [["a", "events-01/Qm9u"]]}}}

From the ensemble's root, as the table's own node is, for pipelines of different roots have to meet there. Beside that
node, never under it: a DROP would remove the claim, and what is created under it afterwards keeps CREATE from
succeeding. `czxid` is of the table's node: a table that was dropped and created again has no claim. It must only be
written with the table's lock of the same place held (`locks.py`), so that what was read under it stays true. Every
login may write there, as by default into ClickHouse's own nodes: pipelines that share a table need not share a login.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import quote

from pydantic import BaseModel, ConfigDict, ValidationError

from blockhouse.errors import Blocked, Permanent, Retryable
from blockhouse.schema.model import TOPIC_COLUMN
from blockhouse_aggregator.coordination.session import Session

TABLES = "/blockhouse/tables"
ACCESS_DENIED = "ZooKeeperAccessDenied"

Topic = tuple[str, str]
"""A Kafka cluster's name, and what rows hold in `_kafka_topic`."""


class Claimant(BaseModel):
    """A pipeline, and the topics whose rows it has loaded. One that has `ended` refuses no other."""

    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may know more

    topics: tuple[Topic, ...] = ()
    ended: bool = False


class Claims(BaseModel):
    """All claims of one table, by claimant. `czxid` is of the table's node that they are of."""

    model_config = ConfigDict(frozen=True, extra="ignore")

    czxid: int
    claimants: Mapping[str, Claimant] = {}

    def with_claim(self, who: str, topic: Topic) -> Claims:
        """The same, with this claim; itself if it is there."""
        known = self.claimants.get(who, Claimant())
        if topic in known.topics and not known.ended:
            return self
        claimant = Claimant(topics=tuple(sorted({*known.topics, topic})))
        return Claims(czxid=self.czxid, claimants={**self.claimants, who: claimant})

    def ended(self, who: str) -> Claims:
        """The same, with a claimant that has ended."""
        claimant = self.claimants[who].model_copy(update={"ended": True})
        return Claims(czxid=self.czxid, claimants={**self.claimants, who: claimant})

    def like(self, topic: Topic, columns: frozenset[str], *, ended: bool) -> Iterator[tuple[str, Topic]]:
        """Claimant and topic of each claim whose rows nothing separates from the topic's in a table with these
        provenance columns; those of claimants that have ended only if asked for."""
        for who, claimant in self.claimants.items():
            for other in claimant.topics if ended or not claimant.ended else ():
                if _separated(other, columns) == _separated(topic, columns):
                    yield who, other

    def sole(self, topic: Topic, columns: frozenset[str]) -> bool:
        """Whether rows that name no topic can be of no other one, as far as they are separated at all."""
        return all(other == topic for _, other in self.like(topic, columns - {TOPIC_COLUMN}, ended=True))


def _separated(topic: Topic, columns: frozenset[str]) -> tuple[str, ...]:
    """What of the topic the table's rows show."""
    cluster, named = topic
    shown = ((cluster, "_kafka_cluster"), (named, TOPIC_COLUMN))
    return tuple(value for value, column in shown if column in columns)


def admit(claims: Claims, table: str, who: str, topic: Topic, columns: frozenset[str]) -> tuple[Claims, bool]:
    """The claims with ours, and whether rows that name no topic can be of no other one. `columns` are the provenance
    columns the table has. Raises Blocked when another pipeline has claimed the table for rows like ours."""
    alike = claims.like(topic, columns, ended=False)
    others = sorted({f"{name} ({other[0]}: {other[1]})" for name, other in alike if name != who})
    if others:
        text = (
            f"table {table} is loaded by {', '.join(others)}: nothing in its rows would separate them from ours, of "
            f"{topic[0]}: {topic[1]}"
        )
        advice = f"add column {TOPIC_COLUMN}, load another table, or `blockhouse streams claims` if that one has ended"
        raise Blocked(f"{text}; {advice}", reason="TableClaimed")
    return claims.with_claim(who, topic), claims.sole(topic, columns)


def place(table_path: str) -> str:
    """The node below which claims and locks of the table are, whose own node is `table_path`."""
    return f"{TABLES}/{quote(table_path, safe='')}"


class TableClaims:
    """Claims of one pipeline's shard, `who`. Thread-safe. Raises Retryable while ZooKeeper is unavailable."""

    def __init__(self, session: Session, who: str) -> None:
        self._znodes = session.znodes
        self._who = who

    def claim(self, table: str, table_path: str, topic: Topic, columns: frozenset[str]) -> bool:
        """Claim the table, with its lock held; whether rows that name no topic can be of no other one. Raises Blocked
        when another pipeline has claimed it for rows like ours, Permanent (ACCESS_DENIED) when the place is not ours
        to write."""
        claims, version = self._read(table, table_path)
        changed, sole = admit(claims, table, self._who, topic, columns)
        if changed is not claims:
            self._write(table_path, changed, version)
        return sole

    def all(self, table: str, table_path: str) -> Claims:
        """Every claim of the table."""
        return self._read(table, table_path)[0]

    def release(self, table: str, table_path: str, who: str) -> bool:
        """Let a claimant refuse no other any more; False when there is no such. The caller knows that it has ended."""
        claims, version = self._read(table, table_path)
        if who not in claims.claimants:
            return False
        self._write(table_path, claims.ended(who), version)
        return True

    def _read(self, table: str, table_path: str) -> tuple[Claims, int]:
        """The claims and their version, -1 before the first."""
        path = f"{place(table_path)}/claims"
        found, node = self._znodes.get_many([path, table_path])
        if node is None:
            raise Retryable(f"zookeeper {table_path}: table {table} has no node: it was dropped", after=1.0)
        if found is None:
            return Claims(czxid=node.created_zxid), -1
        try:
            claims = Claims.model_validate_json(found.data)
        except ValidationError as error:
            raise Permanent(f"zookeeper {path}: not Claims: {error}", reason="ClaimsUnreadable") from error
        return (claims if claims.czxid == node.created_zxid else Claims(czxid=node.created_zxid)), found.version

    def _write(self, table_path: str, claims: Claims, version: int) -> None:
        path, data = f"{place(table_path)}/claims", claims.model_dump_json().encode()
        if version >= 0:
            self._znodes.write(path, data, version)
        elif not self._znodes.create(path, data, of_all=True):
            raise Retryable(f"zookeeper {path}: another process was first", after=0.1)
