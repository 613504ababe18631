"""Whether a cluster can be reached: turns the client's noisy error events into one `failed` and one `recovered`.

librdkafka reports every lost connection and never a regained one. So an event only raises suspicion, and a probe
decides. Must never report a cluster down because one of its brokers is.
"""

from __future__ import annotations

import time

from confluent_kafka import KafkaError

from blockhouse.errors import BlockhouseError
from blockhouse.kafka_errors import is_fatal, translate
from blockhouse_aggregator.kafka.group import GroupListener
from blockhouse_aggregator.kafka.session import Session

_PROBE_SECONDS = 1.0
_PAUSE_SECONDS = 1.0

# Reported by the group callbacks already, or harmless for a member that fetches nothing.
_IGNORED = {KafkaError._MAX_POLL_EXCEEDED, KafkaError._AUTO_OFFSET_RESET, KafkaError._PARTITION_EOF}
# A metadata probe would succeed in spite of these: only an assignment shows that they are gone.
_UNTIL_ASSIGNED = {KafkaError.GROUP_AUTHORIZATION_FAILED, KafkaError.INCONSISTENT_GROUP_PROTOCOL}


class Health:
    """Belongs to the member's thread."""

    def __init__(self, listener: GroupListener, cluster: str) -> None:
        self._listener = listener
        self._doing = f"keeping the group membership in cluster {cluster}"
        self.reset()

    def reset(self) -> None:
        """Forget everything silently: a new session begins."""
        self.fatal: BlockhouseError | None = None
        self._suspicion: KafkaError | None = None
        self._failure: BlockhouseError | None = None
        self._until_assigned = False
        self._next_probe = 0.0

    def report(self, error: KafkaError) -> None:
        """Take note of an error the client reported."""
        if is_fatal(error):
            self.fatal = translate(error, self._doing)
        elif error.code() in _UNTIL_ASSIGNED:
            self._until_assigned = True
            self._fail(translate(error, self._doing))
        elif error.code() not in _IGNORED and not self._explained():
            self._suspicion = error

    @property
    def failing(self) -> bool:
        """Whether the cluster does not answer, or refuses us."""
        return self._failure is not None

    def absent(self, error: BlockhouseError) -> None:
        """There is no session, for `error`; one that is opened later is probed, and so found to be well."""
        self._fail(error)

    def _explained(self) -> bool:
        """A wrong password comes with plain disconnects before and after it: keep the better explanation."""
        return self._suspicion is not None and bool(translate(self._suspicion, "").reason)

    def assigned(self) -> None:
        """The group works: it gave us an assignment (even an empty one)."""
        self._until_assigned = False
        self._heal()

    def check(self, session: Session) -> None:
        """Probe when something is suspected or wrong, at most once a second; waits up to a second for an answer."""
        suspected = self._suspicion is not None or self._failure is not None
        if not suspected or time.monotonic() < self._next_probe:
            return
        error = session.probe(_PROBE_SECONDS)
        self._next_probe = time.monotonic() + _PAUSE_SECONDS
        if error is None:
            self._suspicion = None
            if not self._until_assigned:
                self._heal()
        elif self._suspicion is not None and not error.reason:
            self._fail(translate(self._suspicion, self._doing))
        else:
            self._fail(error)

    def _fail(self, error: BlockhouseError) -> None:
        reported = self._failure
        if reported is None or (type(reported), reported.reason) != (type(error), error.reason):
            self._failure = error
            self._listener.failed(error)

    def _heal(self) -> None:
        if self._failure is not None:
            self._failure = None
            self._listener.recovered()
