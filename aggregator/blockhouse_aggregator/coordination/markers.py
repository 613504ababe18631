"""Facts that must outlive Kafka's group offsets: that a stream was started, and what an operator decided.

Group offsets expire; without a marker, an expired stream would look like a new one and be loaded again from the
earliest offset. Markers are never deleted by the aggregator.

    <root>/streams/<cluster>/<topic>/<partition>   {"topic_id": ..., "started_ms": ..., "replica": ...}
    <root>/decisions/<subject>                     {"action": ..., "by": ..., "at_ms": ...}
"""

from __future__ import annotations

from typing import TypeVar

from pydantic import BaseModel, ConfigDict, ValidationError

from blockhouse.errors import Permanent
from blockhouse.streams import StreamId
from blockhouse_aggregator.coordination.session import Session
from blockhouse_aggregator.coordination.znodes import VersionConflict, Znode


class _Record(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")  # a newer version may know more


class StreamMarker(_Record):
    """A stream had its first commit: of which incarnation of the topic, when (Unix milliseconds), by whom."""

    topic_id: str
    started_ms: int
    replica: str


class Decision(_Record):
    """What an operator decided about a blocked stream or table: taken once, by whoever owns the subject."""

    action: str
    by: str
    at_ms: int


RecordT = TypeVar("RecordT", bound=_Record)


class StreamMarkers:
    """Markers of the streams. Thread-safe. Raises Retryable while ZooKeeper is away, Permanent for foreign content."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._znodes = session.znodes

    def get(self, stream: StreamId) -> StreamMarker | None:
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

    def _path(self, stream: StreamId) -> str:
        return self._session.path("streams", stream.cluster, stream.topic, str(stream.partition))


def block_subject(stream: StreamId, table: str) -> str:
    """The subject of decisions about the block a table has in flight in a stream."""
    return f"block {stream} {table}"


class Decisions:
    """An operator's decisions by subject: `stream a/events-01/3`, `block a/events-01/3 db.clicks`. Thread-safe."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._znodes = session.znodes

    def get(self, subject: str) -> Decision | None:
        node = self._znodes.get(self._path(subject))
        return _parse(Decision, self._path(subject), node) if node else None

    def put(self, subject: str, decision: Decision) -> None:
        """Record a decision; a former one that nobody has taken is replaced."""
        data = decision.model_dump_json().encode()
        if not self._znodes.create(self._path(subject), data):
            self._znodes.write(self._path(subject), data, -1)

    def consume(self, subject: str, decision: Decision) -> bool:
        """Take the decision away once it is carried out; False when it is gone or is another by now.

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
