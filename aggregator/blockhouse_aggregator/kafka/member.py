"""Membership in the consumer group of one Kafka cluster: which streams are ours, and the commits for them.

One thread owns the consumer; all others post to its queue and get a future. It fetches no data. It must never
commit for a stream that is not owned in the given epoch (Kafka would accept it: the fence is member and generation,
not ownership), must never poll between that check and the commit, and after a commit of unknown fate must not continue
under the same member id.
"""

from __future__ import annotations

import contextlib
import math
import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future
from dataclasses import dataclass
from typing import TypeVar

import structlog
from confluent_kafka import OFFSET_END, Consumer, KafkaException, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.pipeline import Kafka
from blockhouse.errors import BlockhouseError, Permanent, Retryable
from blockhouse.kafka_errors import translate
from blockhouse.kafka_login import Certificates, Login
from blockhouse.streams import StreamId
from blockhouse_aggregator.kafka.coverage import Coverage
from blockhouse_aggregator.kafka.group import (
    Committed,
    DropReason,
    GroupListener,
)
from blockhouse_aggregator.kafka.health import Health
from blockhouse_aggregator.kafka.session import Session, settings
from blockhouse_aggregator.protocol.commits import STALE_EPOCH, CommitOutcome, Unknown

T = TypeVar("T")
log = structlog.get_logger(__name__)

_POLL_SECONDS = 0.1
_LEAVE_SECONDS = 5.0
_READ_SECONDS = 5.0
_SETTLE_SECONDS, _SETTLE_POLL = 5.0, 0.02
"""How long a rebalance waits for what is in flight of the streams it takes: what is stored and recorded by then need
not be replayed by their next owners. At most half the patience of a commit: those of members that have rejoined
already wait for us."""
_TWIN_SECONDS = 60.0
_OPEN_AGAIN_SECONDS = 1.0


@dataclass(frozen=True, slots=True)
class _Command:
    """What was asked for; `settles` when it may be carried out while streams are being released."""

    run: Callable[[], None]
    settles: bool


class GroupMember:
    """A static member of `kafka.group` in one cluster. Outside the group until `join`.

    `instance_id` must be unique in the group and survive restarts: the replica's name.
    """

    def __init__(self, cluster: KafkaCluster, kafka: Kafka, instance_id: str, listener: GroupListener) -> None:
        self._cluster = cluster
        self._kafka = kafka
        self._instance_id = instance_id
        self._listener = listener
        self._commands: queue.SimpleQueue[_Command] = queue.SimpleQueue()
        self._postponed: deque[_Command] = deque()
        self._leaving = self._settling = self._doomed = False
        self._session: Session | None = None
        self._owned: dict[StreamId, int] = {}
        self._epoch = 0
        self._fenced_at = -math.inf
        self._open_again_at: float | None = None
        """When to try once more what failed for want of a secret or a certificate."""
        self._health = Health(listener, cluster.name)
        self._coverage = Coverage(cluster, kafka, instance_id)
        self._certificates = Certificates(cluster)
        """Those that the session's client has."""
        self._closed = False
        self._thread = threading.Thread(target=self._run, name=f"kafka-member-{cluster.name}", daemon=True)
        self._thread.start()

    # What others may call, from any thread.

    def join(self) -> Future[None]:
        """Join the group; done when the client has begun to (streams arrive at the listener)."""
        return self._post(self._join)

    def leave(self) -> Future[None]:
        """Release all streams and leave, so that another replica takes over at once. `join` comes back."""
        return self._post(self._leave)

    def rejoin(self) -> Future[None]:
        """Release all streams and come back under a new member id, as after a commit of unknown fate."""
        return self._post(self._rejoin)

    def commit(
        self, stream: StreamId, epoch: int, offset: int, metadata: str, leader_epoch: int = -1
    ) -> Future[CommitOutcome]:
        """Commit `offset` and `metadata` (no NUL inside) if `stream` is still owned under `epoch`.

        `leader_epoch` is that of the last message below `offset`, -1 when not known.
        """
        target = TopicPartition(stream.topic, stream.partition, offset, metadata, leader_epoch)
        return self._post(lambda: self._commit(stream, epoch, target), settles=True)

    def committed(self, stream: StreamId, epoch: int) -> Future[Committed]:
        """Read what the group committed. Fails with Permanent StaleEpoch when the stream is not owned any more."""
        return self._post(lambda: self._committed(stream, epoch))

    def close(self, leave: bool) -> None:
        """End for good. Without `leave` the streams wait for a restart within the session time-out."""
        if not self._thread.is_alive():
            return
        self._post(lambda: self._end(leave))
        self._thread.join(2 * _LEAVE_SECONDS + self._kafka.commit_timeout)

    # All below runs on the member's own thread.

    def _post(self, action: Callable[[], T], *, settles: bool = False) -> Future[T]:
        future: Future[T] = Future()

        def command() -> None:
            if not future.set_running_or_notify_cancel():
                return
            try:
                future.set_result(action())
            except BlockhouseError as error:
                future.set_exception(error)
            except Exception as error:  # noqa: BLE001 - the caller learns it, and the session is not trusted any more
                future.set_exception(error)
                self._crashed(error)

        self._commands.put(_Command(command, settles))
        return future

    def _run(self) -> None:
        next_poll = time.monotonic()
        while not self._closed:
            # Waiting for commands, not in poll: librdkafka cannot be woken, and a commit must not wait for it.
            due = next_poll if self._session is not None else self._open_again_at
            wait = None if due is None else max(0.0, due - time.monotonic())
            with contextlib.suppress(queue.Empty):
                (self._postponed.popleft() if self._postponed else self._commands.get(timeout=wait)).run()
            if self._session is not None and time.monotonic() >= next_poll:
                self._poll(self._session)
                next_poll = time.monotonic() + _POLL_SECONDS
            elif self._open_again_at is not None and time.monotonic() >= self._open_again_at:
                self._open()

    def _poll(self, session: Session) -> None:
        try:
            for error in session.poll():
                self._health.report(error)
            if self._health.fatal is not None:
                self._expelled(self._health.fatal)
            elif self._doomed:
                self._rejoin()
            elif session.replaced():
                log.warning("member_replaced", cluster=self._cluster.name, group=self._kafka.group)
                self._rejoin("lost")
            elif self._health.failing and self._certificates.replaced():
                log.info("certificates_replaced", cluster=self._cluster.name, group=self._kafka.group)
                self._rejoin()
            else:
                self._health.check(session)
                if self._coverage.overdue():
                    self._begin_round()
        except Exception as error:  # noqa: BLE001 - a bug of listener or client must not end the thread silently
            self._crashed(error)

    def _join(self) -> None:
        if self._closed:
            raise Permanent(f"member {self._instance_id} is closed", reason="MemberClosed")
        if self._session is None:
            self._health.reset()
            self._open()

    def _open(self) -> None:
        self._certificates = Certificates(self._cluster)
        try:
            self._session = Session(
                settings(self._cluster, self._kafka, self._instance_id),
                self._kafka.topic,
                Login(self._cluster),
                on_assign=self._on_assign,
                on_revoke=lambda _, partitions: self._on_revoke(partitions),
                on_lost=lambda _, partitions: self._on_drop(partitions, "lost"),
                on_error=self._health.report,
            )
        except (KafkaException, Retryable) as error:  # the client refuses its settings, e.g. an unreadable certificate
            doing = f"joining group {self._kafka.group} in cluster {self._cluster.name}"
            self._health.absent(translate(error, doing) if isinstance(error, KafkaException) else error)
            self._open_again_at = time.monotonic() + _OPEN_AGAIN_SECONDS
            return
        self._open_again_at = None
        self._coverage.forget()

    def _on_assign(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        # At the end there is nothing to fetch in the moment before the pause; the committed offset, the default,
        # would be read for nothing and its absence reported as an error.
        for partition in partitions:
            partition.offset = OFFSET_END
        consumer.incremental_assign(partitions)
        consumer.pause(partitions)
        self._epoch += 1
        self._health.assigned()
        self._coverage.assigned()
        for stream in self._streams(partitions):
            self._owned[stream] = self._epoch
        for stream in self._streams(partitions):
            self._listener.assigned(stream, self._epoch)

    def _on_revoke(self, partitions: list[TopicPartition]) -> None:
        if not self._leaving:
            self._settle({s: self._owned[s] for s in self._streams(partitions) if s in self._owned})
        self._on_drop(partitions, "revoked")

    def _settle(self, held: Mapping[StreamId, int]) -> None:
        """Carry out commits, and nothing else, until the listener has settled: the group hears that we give these up
        when the callback ends, so they are ours until then."""
        settled = self._listener.settling(held)
        deadline = time.monotonic() + min(_SETTLE_SECONDS, self._kafka.commit_timeout / 2)
        self._settling = True
        while not settled.done() and not self._doomed and time.monotonic() < deadline:
            with contextlib.suppress(queue.Empty):
                command = self._commands.get(timeout=_SETTLE_POLL)
                if command.settles and not settled.done():  # a commit that comes later would begin something new
                    command.run()
                else:
                    self._postponed.append(command)
        self._settling = False
        settled.cancel()

    def _on_drop(self, partitions: list[TopicPartition], reason: DropReason) -> None:
        self._drop(self._streams(partitions), reason)

    def _drop(self, streams: list[StreamId], reason: DropReason) -> None:
        self._epoch += 1
        held = [(stream, self._owned.pop(stream)) for stream in streams if stream in self._owned]
        for stream, epoch in held:
            self._listener.dropped(stream, epoch, reason)

    def _streams(self, partitions: list[TopicPartition]) -> list[StreamId]:
        return [StreamId(self._cluster.name, entry.topic, entry.partition) for entry in partitions]

    def _commit(self, stream: StreamId, epoch: int, target: TopicPartition) -> CommitOutcome:
        session = self._session
        if session is None or self._owned.get(stream) != epoch:
            return STALE_EPOCH
        commit = session.commit_in_callback if self._settling else session.commit
        outcome = commit(target, self._kafka.commit_timeout)
        if isinstance(outcome, Unknown):
            # The same instance under a new member id makes the old id, and every request of it, invalid.
            log.warning("commit_fate_unknown", stream=str(stream), cause=outcome.reason)
            if self._settling:
                self._doomed = True  # inside a callback of the client, which cannot be thrown away before it ends
            else:
                self._rejoin()
        return outcome

    def _committed(self, stream: StreamId, epoch: int) -> Committed:
        session = self._session
        if session is None or self._owned.get(stream) != epoch:
            raise Permanent(f"stream {stream} is not owned under epoch {epoch} any more", reason="StaleEpoch")
        try:
            answer = session.committed(TopicPartition(stream.topic, stream.partition), _READ_SECONDS)
        except KafkaException as error:
            raise translate(error, f"reading the committed offset of {stream}") from error
        if answer.offset < 0:
            return Committed(None)
        return Committed(answer.offset, answer.metadata, answer.leader_epoch)

    def _leave(self) -> None:
        self._open_again_at = None
        session = self._session
        if session is None:
            return
        self._leaving = True
        session.leave(_LEAVE_SECONDS)
        self._leaving = False
        self._session = None
        self._drop(list(self._owned), "lost")

    def _begin_round(self) -> None:
        """Leave and come back: either makes the group assign every stream again."""
        self._leave()
        self._health.fatal = None  # of the session that has ended
        self._open()

    def _rejoin(self, reason: DropReason = "rejoin") -> None:
        if self._session is not None:
            self._detach(reason)
            self._open()

    def _end(self, leave: bool) -> None:
        self._closed = True
        if leave:
            self._leave()
        elif (session := self._session) is not None:
            self._session = None
            self._drop(list(self._owned), "revoked")
            session.close()

    def _detach(self, reason: DropReason) -> None:
        """Out of the session at once: nothing is owned, nothing will be committed, the consumer ends by itself."""
        session, self._session = self._session, None
        self._doomed = False
        if session is not None:
            session.abandon()
        self._drop(list(self._owned), reason)

    def _expelled(self, error: BlockhouseError) -> None:
        """Once we come back: what fenced us may have been our own request to join, kept by the network until it healed
        and delivered after its repetition. A member that is fenced again soon has a twin: the newer of both stays."""
        twin = time.monotonic() - self._fenced_at < _TWIN_SECONDS
        if not isinstance(error, Permanent) or error.reason != "InstanceFenced" or twin:
            self._fatal(error)
            return
        log.warning("member_fenced", cluster=self._cluster.name, group=self._kafka.group, cause=str(error))
        self._fenced_at = time.monotonic()
        self._health.fatal = None
        self._rejoin("lost")

    def _fatal(self, error: BlockhouseError) -> None:
        log.error("member_stopped", cluster=self._cluster.name, group=self._kafka.group, error=str(error))
        self._detach("lost")
        self._listener.failed(error)

    def _crashed(self, error: Exception) -> None:
        log.exception("member_crashed", cluster=self._cluster.name, group=self._kafka.group)
        try:
            self._fatal(Permanent(f"group member of cluster {self._cluster.name} crashed: {error!r}", reason="Crashed"))
        except Exception:  # a listener that fails even now must not keep others from closing us
            log.exception("listener_failed")
