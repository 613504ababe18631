"""What an error of the Kafka client means for us: one table, so that every program judges alike.

Must never put a client's configuration into a text: it holds secrets.
"""

from __future__ import annotations

from confluent_kafka import KafkaError, KafkaException

from blockhouse.errors import BlockhouseError, Permanent, Retryable

_PERMANENT: dict[int, tuple[str, str]] = {
    KafkaError.UNKNOWN_TOPIC_OR_PART: ("UnknownTopic", "create the topic, or correct its name"),
    KafkaError._UNKNOWN_TOPIC: ("UnknownTopic", "create the topic, or correct its name"),
    KafkaError._UNKNOWN_PARTITION: ("UnknownTopic", "the topic has fewer partitions than asked for"),
    KafkaError.TOPIC_EXCEPTION: ("InvalidTopic", "correct the topic's name"),
    KafkaError.TOPIC_AUTHORIZATION_FAILED: ("NotAuthorized", "grant the user access to the topic"),
    KafkaError.GROUP_AUTHORIZATION_FAILED: ("NotAuthorized", "grant the user READ on the consumer group"),
    KafkaError.CLUSTER_AUTHORIZATION_FAILED: ("NotAuthorized", "grant the user access to the cluster"),
    KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: ("NotAuthorized", "grant the user idempotent writes"),
    KafkaError.UNSUPPORTED_VERSION: ("UnsupportedBroker", "the broker is too old for this request"),
    KafkaError._UNSUPPORTED_FEATURE: ("UnsupportedBroker", "the broker is too old for this request"),
    KafkaError.MSG_SIZE_TOO_LARGE: ("MessageTooLarge", "raise max.message.bytes of the topic"),
    KafkaError.INVALID_REPLICATION_FACTOR: ("InvalidReplication", "the cluster has too few brokers"),
    KafkaError.FENCED_INSTANCE_ID: (
        "InstanceFenced",
        "another process joined the group under the same group.instance.id: give every replica its own name",
    ),
}

LOGIN_REFUSED = "AuthenticationFailed"
_LOGIN: dict[int, str] = {
    KafkaError._AUTHENTICATION: "check SASL mechanism, user and password",
    KafkaError.SASL_AUTHENTICATION_FAILED: "check SASL mechanism, user and password",
    KafkaError.UNSUPPORTED_SASL_MECHANISM: "the broker has not enabled this mechanism",
}
"""Retryable, though a wrong password stays wrong: one that is replaced is another one in Kafka before it is in our
file, for as long as a kubelet takes, and nothing may stop for that. The reason is named as that of any other error."""

_PLAIN: dict[int, str] = {
    KafkaError._TRANSPORT: "the broker cannot be reached",
    KafkaError._ALL_BROKERS_DOWN: "no broker can be reached",
    KafkaError._RESOLVE: "the broker's host name is not known",
    KafkaError._TIMED_OUT: "the brokers have not answered in time",
    KafkaError._MSG_TIMED_OUT: "the brokers have not acknowledged it in time",
    KafkaError.REQUEST_TIMED_OUT: "the broker has not answered in time",
    KafkaError._NOENT: "no broker leads it now",
    KafkaError.LEADER_NOT_AVAILABLE: "no broker leads it now",
    KafkaError.COORDINATOR_NOT_AVAILABLE: "the group's coordinator is not available",
    KafkaError.NOT_ENOUGH_REPLICAS: "too few replicas of it are in sync",
}
"""The client's own words are for those who know it."""

_FENCED_TEXT = KafkaError(KafkaError.FENCED_INSTANCE_ID).str()


def is_fatal(error: KafkaError) -> bool:
    """The client is of no more use. (A consumer reports `_FATAL` without setting the error's own flag.)"""
    return bool(error.fatal()) or error.code() in (KafkaError._FATAL, KafkaError.FENCED_INSTANCE_ID)


def translate(error: KafkaError | KafkaException, doing: str) -> BlockhouseError:
    """The error to raise for `error`; `doing` names the action and its object, e.g. `reading bounds of a/t/0`.

    What is not known to be permanent is Retryable: brokers come back, and stopping would be the worse mistake.
    """
    cause: KafkaError = error.args[0] if isinstance(error, KafkaException) else error
    # Of the error behind `_FATAL` the client passes on nothing but the text.
    fenced = cause.code() == KafkaError._FATAL and _FENCED_TEXT in cause.str()
    code = KafkaError.FENCED_INSTANCE_ID if fenced else cause.code()
    own = f"{cause.str()} ({cause.name()})" if code not in _PLAIN else f"{_PLAIN[code]} ({cause.str()}, {cause.name()})"
    text = f"Kafka: {doing} failed: {own}"
    if code in _PERMANENT:
        reason, advice = _PERMANENT[code]
        return Permanent(f"{text}; {advice}", reason=reason, code=code)
    if code in _LOGIN:
        return Retryable(f"{text}; {_LOGIN[code]}", after=1.0, reason=LOGIN_REFUSED, code=code)
    if is_fatal(cause):
        return Permanent(f"{text}; the client cannot recover; restart the process", reason="ClientFatal", code=code)
    return Retryable(text, after=1.0, code=code)


class LoginRefusal:
    """Why brokers refuse a client's login. Its calls only time out then; the reason comes beside them, as an event, and
    counts until the client is answered again."""

    def __init__(self) -> None:
        self._heard: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """An event of the client, for its `error_cb`, which it calls while it is polled."""
        if error.code() in _LOGIN:
            self._heard = error

    def behind(self, error: KafkaError | KafkaException) -> KafkaError | KafkaException:
        """The reason of a call that failed with `error`: the refusal, if one was heard."""
        return self._heard or error

    def over(self) -> None:
        """A broker has answered."""
        self._heard = None
