"""One consumer from its creation to its end: one member id of the group while it holds anything (`replaced`).

A commit of unknown fate is answered by throwing the whole session away, so everything here is bounded in time and
nothing here survives `abandon`. Must never send a commit twice: see `settings`.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as FutureTimeoutError
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.config.pipeline import Kafka
from blockhouse.errors import BlockhouseError
from blockhouse.kafka_errors import translate
from blockhouse.kafka_login import Login
from blockhouse.lane import Lane
from blockhouse_aggregator.kafka.group import judge
from blockhouse_aggregator.protocol.commits import CommitOutcome, Refused, Unknown

PartitionsCallback = Callable[[Consumer, list[TopicPartition]], None]

# librdkafka varies its retry back-off by 20 % either way.
_JITTER = 0.8
_CLOSE_SECONDS = 5.0
_ENDED_SECONDS, _ENDED_ASK = 0.5, 0.1
_BURST = 100


def settings(cluster: KafkaCluster, kafka: Kafka, instance_id: str) -> dict[str, Any]:
    """librdkafka settings of a group member.

    librdkafka retries a commit by itself after a lost connection. A retried answer proves nothing about the first
    request, which may still arrive. Hence the back-off is longer than we wait for an answer: whatever is answered in
    time answers the only request there is. (The wait is not shortened to seconds: while the member rejoins, the
    broker answers a commit only after the join, which takes a heartbeat interval of the other members.)
    """
    backoff_ms = math.ceil(kafka.commit_timeout * 1000 / _JITTER) + 50
    session_ms = int(kafka.session_timeout * 1000)
    return {
        **cluster.client_config(),
        "group.id": kafka.group,
        "group.instance.id": instance_id,
        "client.id": f"blockhouse-{instance_id}",
        "group.protocol": "classic",
        "partition.assignment.strategy": "cooperative-sticky",
        "session.timeout.ms": session_ms,
        "heartbeat.interval.ms": int(kafka.heartbeat_interval * 1000),
        # A member whose thread is stuck (its heartbeats continue by themselves) is thrown out after this.
        "max.poll.interval.ms": max(60_000, 3 * session_ms, 2 * backoff_ms),
        "enable.auto.commit": False,
        "enable.auto.offset.store": False,
        "auto.offset.reset": "error",
        "retry.backoff.ms": backoff_ms,
        "retry.backoff.max.ms": backoff_ms,
        "socket.connection.setup.timeout.ms": 10_000,
        "topic.metadata.refresh.interval.ms": 10_000,
        # What the client logs it also reports as events, and those become one `failed`, not a line every 50 ms.
        "log_level": 0,
    }


class Session:
    """A subscribed consumer that holds partitions paused. Not thread-safe: one thread calls it."""

    def __init__(
        self,
        config: dict[str, Any],
        topic: str,
        login: Login,
        *,
        on_assign: PartitionsCallback,
        on_revoke: PartitionsCallback,
        on_lost: PartitionsCallback,
        on_error: Callable[[KafkaError], None],
    ) -> None:
        self._topic = topic
        self._login = login
        self._closing = False
        self._consumer = Consumer({**config, "error_cb": lambda error: None if self._closing else on_error(error)})
        # For the two calls that librdkafka does not bound in time: commit and close. While one of them runs no other
        # touches the consumer (a commit beside a poll hangs indefinitely); if it does not come back, lane and consumer
        # are abandoned together.
        self._lane = Lane(f"kafka-{config['client.id']}")
        self._member_id: str | None = None
        """The one under which partitions are held; None before the first are assigned, and after all were lost."""
        callbacks = {"on_assign": self._joined(on_assign), "on_revoke": on_revoke, "on_lost": self._lost(on_lost)}
        self._consumer.subscribe([topic], **{name: self._unless_closing(call) for name, call in callbacks.items()})

    def _joined(self, on_assign: PartitionsCallback) -> PartitionsCallback:
        def heard(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            if self._member_id is None:
                self._member_id = consumer.memberid()
            on_assign(consumer, partitions)

        return heard

    def _lost(self, on_lost: PartitionsCallback) -> PartitionsCallback:
        def heard(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            self._member_id = None
            on_lost(consumer, partitions)

        return heard

    def _unless_closing(self, callback: PartitionsCallback) -> PartitionsCallback:
        """What the group still sends to a consumer that closes is for no one any more: there may be another session."""

        def heard(consumer: Consumer, partitions: list[TopicPartition]) -> None:
            if self._closing:
                self._await_end(consumer)
            else:
                callback(consumer, partitions)

        return heard

    def _await_end(self, consumer: Consumer) -> None:
        """Wait until the client's group thread has ended, or is seen to wait for an answer of ours.

        After a rebalance callback confluent-kafka informs that thread that the partitions are taken or released, and
        waits for its answer without limit, with the interpreter's lock held. A thread about to end throws the request
        away (librdkafka 2.16: `rd_kafka_cgrp_op_serve` when terminated), and the whole process stands still forever.
        Of one that has ended the requests fail at once. Only this question has a limit of time.
        """
        deadline = time.monotonic() + _ENDED_SECONDS
        while time.monotonic() < deadline:
            try:
                consumer.committed([TopicPartition(self._topic, 0)], timeout=_ENDED_ASK)
            except KafkaException as error:
                if error.args[0].code() == KafkaError._TIMED_OUT:
                    continue
            return

    def replaced(self) -> bool:
        """Whether the client has another member id than the one under which its partitions were assigned.

        A static member whose request to join meets UNKNOWN_MEMBER_ID joins again under a new id and keeps what it
        holds, without a word to us (librdkafka 2.16, `rd_kafka_cgrp_handle_JoinGroup`), although its streams had
        another owner since. The group accepts commits of the new id: only this question shows that they are not ours.
        """
        return self._member_id is not None and self._consumer.memberid() != self._member_id

    def poll(self) -> list[KafkaError]:
        """Serve callbacks without waiting; returns the errors the client reports. No data: all is paused."""
        self._login.refresh(self._consumer)
        errors = []
        for _ in range(_BURST):
            message = self._consumer.poll(0)
            if message is None:
                break
            error = message.error()
            if error is not None:
                errors.append(error)
        return errors

    def commit(self, target: TopicPartition, patience: float) -> CommitOutcome:
        """Send one commit and wait `patience` seconds. After UNKNOWN only `abandon` may be called."""
        answer = self._lane.submit(lambda: self._commit(target))
        try:
            return answer.result(patience)
        except FutureTimeoutError:
            return Unknown(f"no answer within {patience:g} s")

    def commit_in_callback(self, target: TopicPartition, patience: float) -> CommitOutcome:
        """The same inside a callback, where only the polling thread may commit: nothing bounds the wait for a cluster
        that goes away at that moment, and an answer after `patience` may be that of a retry."""
        began = time.monotonic()
        outcome = self._commit(target)
        if time.monotonic() - began > patience:
            return Unknown(f"no answer within {patience:g} s")
        return outcome

    def _commit(self, target: TopicPartition) -> CommitOutcome:
        if self.replaced():
            return Refused("UnknownMember", retry=False)  # nothing was sent
        try:
            answered = self._consumer.commit(offsets=[target], asynchronous=False)
        except KafkaException as error:
            return judge(error.args[0])
        if self.replaced():  # in the meantime: the request has the id that the client had when it wrote it
            return Unknown("the client has joined again under another member id")
        return judge(next((entry.error for entry in answered or () if entry.error is not None), None))

    def committed(self, partition: TopicPartition, timeout: float) -> TopicPartition:
        """The group's committed offset of one partition. Raises KafkaException."""
        (answer,) = self._consumer.committed([partition], timeout=timeout)
        if answer.error is not None:
            raise KafkaException(answer.error)
        return answer

    def probe(self, timeout: float) -> BlockhouseError | None:
        """Ask any broker for the topic's metadata: None when it answers and knows the topic."""
        try:
            metadata = self._consumer.list_topics(self._topic, timeout=timeout)
        except KafkaException as error:
            return translate(error, "reaching the cluster")
        problem = metadata.topics[self._topic].error
        return None if problem is None else translate(problem, f"subscribing to topic {self._topic}")

    def leave(self, timeout: float) -> None:
        """Announce to the group that we go, so that it rebalances at once, then close.

        A closing static member announces nothing, by design of Kafka; an unsubscribing one does, once its revoke
        callback was served. The client forgets its member id in the moment it sends the request.
        """
        # A client that met a fatal error (it was fenced) refuses: nothing is left to leave.
        with contextlib.suppress(KafkaException):
            self._consumer.unsubscribe()
            deadline = time.monotonic() + timeout
            while self._consumer.memberid() and time.monotonic() < deadline:
                self._consumer.poll(0.01)
        self.close()

    def close(self) -> None:
        """End the consumer; as a static member it keeps its partitions until the session times out."""
        # With an unreachable broker it may last; the lane's daemon thread finishes it, or dies with the process.
        with contextlib.suppress(FutureTimeoutError, KafkaException):
            self.abandon().result(_CLOSE_SECONDS)

    def abandon(self) -> Future[None]:
        """Close in the background, after whatever call still runs: no callback is heard and nothing may be called
        from now on. Fails with KafkaException where the client did not end in order."""
        self._closing = True
        closed = self._lane.submit(self._consumer.close)
        self._lane.end()
        return closed
