"""Facts that must outlive Kafka's group offsets: that a stream was started, and what an operator decided.

Group offsets expire; without a marker, an expired stream would look like a new one and be loaded again from the
earliest offset. Markers are never deleted by the aggregator.

    <root>/streams/<cluster>/<topic>/<partition>   {"topic_id": ..., "started_ms": ..., "replica": ...,
                                                    "seq": 812, "position": 90211, "owner": ...}
    <root>/decisions/<subject>                     {"action": ..., "by": ..., "at_ms": ...}
"""

from __future__ import annotations

from dataclasses import dataclass
from threading import Lock
from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from blockhouse.errors import Permanent, Retryable
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.coordination.znodes import Check, VersionConflict, Write, Znode


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may know more


class StreamMarker(_Record):
    """A stream had its first commit: of which incarnation of the topic, when (Unix milliseconds), by whom.

    `seq` and `position` are of the newest metadata of which a block may be stored (-1: an older version wrote it):
    what is committed in Kafka is never behind them, unless it went back. `owner` is who claimed the stream last,
    `history` the identity of the schema history whose table ids its metadata uses (empty: not known). `former` are the
    ids of topics of its name that it was of before; an empty one stands for whatever a marker that was lost named.
    `restarting` is the stop that a person has accepted and for which `owner` begins afresh: what is committed since may
    be behind this marker, and nothing of it is stored (empty: none).
    """

    topic_id: str
    started_ms: int
    replica: str
    seq: int = -1
    position: int = -1
    owner: str = ""
    history: str = ""
    former: tuple[str, ...] = ()
    restarting: str = ""

    def followed_by(self, new: StreamMarker) -> StreamMarker:
        """What is written in place of this marker: `new`, which remembers the topics there were before."""
        older = (self.topic_id,) if self.topic_id != new.topic_id else ()
        return new.model_copy(update={"former": (*self.former, *older)})


@dataclass(frozen=True, slots=True)
class Claim:
    """Who is about to insert for a stream, and what is committed of it."""

    owner: str
    topic_id: str
    seq: int
    position: int
    history: str


class Decision(_Record):
    """What an operator decided about a blocked stream or table, and why (empty: not given): taken once, by the owner of
    the subject."""

    action: str
    by: str
    at_ms: int
    why: str = ""


RecordT = TypeVar("RecordT", bound=_Record)


class StreamMarkers:
    """Markers of the streams. Thread-safe. Raises Retryable while ZooKeeper is unavailable, Permanent for garbage."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._znodes = session.znodes
        self._guard = Lock()
        self._claimed: dict[StreamId, tuple[str, int, StreamMarker]] = {}
        """Of each stream: who of us has claimed it for certain, and version and content of its marker as that claim
        left it. The version is -1 when the fate of a later write is unknown."""

    def get(self, stream: StreamId) -> StreamMarker | None:
        """The stream's marker; None before its first commit. Raises Retryable, or Permanent for unreadable content."""
        node = self._znodes.get(self._path(stream))
        return _parse(StreamMarker, self._path(stream), node) if node else None

    def ensure(self, stream: StreamId, marker: StreamMarker) -> StreamMarker:
        """Write the marker, before the stream's first commit, unless there is one; returns the one that is there."""
        self._znodes.create(self._path(stream), marker.model_dump_json().encode())
        return self.get(stream) or marker

    def replace(self, stream: StreamId, old: StreamMarker, new: StreamMarker) -> None:
        """For a topic that was re-created, after a decision. Raises VersionConflict unless `old` is what is there."""
        path = self._path(stream)
        node = self._znodes.get(path)
        if node is None or _parse(StreamMarker, path, node) != old:
            raise VersionConflict(f"zookeeper {path}: the marker of {stream} is another by now", after=0.0)
        self._znodes.write(path, new.model_dump_json().encode(), node.version)

    def claim(self, stream: StreamId, seen: StreamMarker | None, owner: str, accepted: str) -> None:
        """Of an owner that begins afresh, for a stop was `accepted`: no earlier one that was about to can mark the
        stream any more. Raises VersionConflict unless `seen` is what is there."""
        if seen is not None:
            self.replace(stream, seen, seen.model_copy(update={"owner": owner, "restarting": accepted}))
        elif self.get(stream) is not None:
            raise VersionConflict(f"zookeeper {self._path(stream)}: {stream} has a marker by now", after=0.0)

    def prove(self, stream: StreamId, claim: Claim, *lock_nodes: str) -> None:
        """In one transaction: the lock's nodes are there, no one else has claimed the stream since, and its marker
        states what is committed. Only one thread at a time may ask for one stream.

        Raises Retryable when one of that is not so, or ZooKeeper is unavailable: nothing may be inserted then.
        """
        path = self._path(stream)
        version, marker = self._as_claimed(stream, claim)
        update = {"owner": claim.owner, "seq": claim.seq, "position": claim.position, "history": claim.history}
        after = marker.model_copy(update=update)
        unchanged = after == marker
        change = Check(path, version) if unchanged else Write(path, after.model_dump_json().encode(), version)
        with self._guard:
            if stream in self._claimed and self._claimed[stream][0] == claim.owner:
                self._claimed[stream] = (claim.owner, -1, marker)
        try:
            self._znodes.together(*(Check(node, 0) for node in lock_nodes), change)
        except VersionConflict as conflict:
            raise Retryable(
                f"{stream}: its lock or the stream itself is another owner's by now", after=0.5
            ) from conflict
        with self._guard:
            self._claimed[stream] = (claim.owner, version if unchanged else version + 1, after)

    def _as_claimed(self, stream: StreamId, claim: Claim) -> tuple[int, StreamMarker]:
        """Version and content of the marker, if the claim may be written to it."""
        with self._guard:
            claimed = self._claimed.get(stream)
        ours = claimed is not None and claimed[0] == claim.owner
        if ours and claimed is not None and claimed[1] >= 0:
            return claimed[1], claimed[2]
        node = self._znodes.get(self._path(stream))
        if node is None:
            raise Retryable(f"zookeeper {self._path(stream)}: the marker of {stream} is gone", after=1.0)
        found = _parse(StreamMarker, self._path(stream), node)
        if ours and found.owner != claim.owner:
            raise Retryable(f"{stream}: {found.owner} has claimed it since", after=0.5)
        if found.history not in ("", claim.history):
            raise Retryable(f"{stream}: its table ids are of another schema history", after=1.0)
        if found.topic_id != claim.topic_id or found.seq > claim.seq:
            text = f"{stream}: its marker states number {found.seq} of topic id {found.topic_id}"
            raise Retryable(f"{text}, ours is {claim.seq} of {claim.topic_id}: another owner continues", after=0.5)
        return node.version, found

    def _path(self, stream: StreamId) -> str:
        return self._session.path("streams", stream.cluster, stream.topic, str(stream.partition))


def stream_subject(stream: StreamId) -> str:
    """The subject of decisions about a stream that has stopped."""
    return f"stream {stream}"


def block_subject(stream: StreamId, table: str) -> str:
    """The subject of decisions about the block a table has in flight in a stream."""
    return f"block {stream} {table}"


class Decisions:
    """An operator's decisions by subject: `stream a/events-01/3`, `block a/events-01/3 db.clicks`. Thread-safe."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._znodes = session.znodes

    def get(self, subject: str) -> Decision | None:
        """What a person decided of `subject`; None without a decision. Raises as `StreamMarkers.get`."""
        node = self._znodes.get(self._path(subject))
        return _parse(Decision, self._path(subject), node) if node else None

    def put(self, subject: str, decision: Decision) -> None:
        """Record a decision; an earlier one that was not taken yet is replaced."""
        data = decision.model_dump_json().encode()
        if not self._znodes.create(self._path(subject), data):
            self._znodes.write(self._path(subject), data, -1)

    def consume(self, subject: str, decision: Decision) -> bool:
        """Delete the decision once it is carried out; False when it is gone or is another by now.

        Of several that try, exactly one gets True. Carry out first: a crash in between repeats the deed, which must
        therefore be idempotent; the other order would forget it.
        """
        path = self._path(subject)
        node = self._znodes.get(path)
        if node is None or _parse(Decision, path, node) != decision:
            return False
        try:
            return self._znodes.delete(path, node.version)
        except VersionConflict:
            return False

    def _path(self, subject: str) -> str:
        return self._session.path("decisions", subject)


def _parse(kind: type[RecordT], path: str, node: Znode) -> RecordT:
    try:
        return kind.model_validate_json(node.data)
    except ValidationError as error:
        raise Permanent(f"zookeeper {path}: not a {kind.__name__}: {error}", reason="MarkerUnreadable") from error
