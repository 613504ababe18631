"""Requests to a live Kafka cluster through kafka-python's admin client: connections, patience and errors, nothing else.

librdkafka, and so confluent-kafka, has neither the reassignment calls nor log directories. The Java client has, but
would need a JVM and jars that PySpark does not bring; kafka-python is one small package without dependencies and has
them all. It is used for nothing else: data and group offsets stay with confluent-kafka.
"""

from __future__ import annotations

import logging
import ssl
from collections.abc import Collection, Mapping
from typing import Any

from kafka import IsolationLevel, KafkaAdminClient  # type: ignore[import-untyped]
from kafka import TopicPartition as ClientPartition
from kafka.admin import OffsetSpec  # type: ignore[import-untyped]
from kafka.errors import (  # type: ignore[import-untyped]
    KafkaError,
    NodeNotReadyError,
    RequestTimedOutError,
    SaslAuthenticationFailedError,
    ThrottlingQuotaExceededError,
    UnknownBrokerIdError,
)
from kafka.net.compat import KafkaNetClient  # type: ignore[import-untyped]
from tenacity import RetryCallState, Retrying, retry_if_exception, stop_after_attempt, stop_all, stop_before_delay

from blockhouse.config.endpoints import KafkaCluster, Tls
from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet import kafka_denials as denials
from blockhouse.fleet.kafka_handshake import handshake_failure

REQUEST_TIMEOUT_MS = 30_000
CONNECT_TIMEOUT_MS = 5_000  # three attempts within the patience: enough to meet two bootstrap servers, see `connect`
PATIENCE = 15.0  # seconds: a broker that has died is in the cluster's answers for a session of 9 s
RETRY_WAIT = 0.1
_SETUP_TIMES = ("socket_connection_setup_timeout_ms", "socket_connection_setup_timeout_max_ms")
LEAST_ATTEMPTS = 2  # of a request to one broker: the first may have waited for metadata of another one that is frozen

Errors = type[KafkaError] | tuple[type[KafkaError], ...]

logging.getLogger("kafka").setLevel(logging.ERROR)  # its debug output holds passwords, its warnings are our retries


class KafkaRequests:
    """One cluster. Connects on first use and again after a failure.

    With `per_broker` each request concerns one broker, and one that is frozen must not cost the others: a timeout
    closes the connection to the broker that was silent and no other, so that the next attempt asks those that answer.
    """

    def __init__(
        self,
        cluster: KafkaCluster,
        *,
        patience: float | None = None,
        request_timeout_ms: int = REQUEST_TIMEOUT_MS,
        per_broker: bool = False,
    ) -> None:
        self._cluster = cluster
        self._per_broker = per_broker
        self._patience = PATIENCE if patience is None else patience
        self._request_timeout_ms = request_timeout_ms
        self._client: Any = None
        self._unconnected = 0
        self._connections: list[Any] = []

    def close(self) -> None:
        """Close the client, if there is one; the next request opens another."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def ask(self, request: str, *arguments: Any, allowed: Errors = (), **options: Any) -> Any:
        """One request, for `patience` seconds until a broker answers it. An `allowed` error is an answer too (None).

        Each attempt has a connection of its own: the client keeps asking a broker that has died, and a new one picks
        any of those the cluster still names, for as long as its session lasts also the dead. Raises Retryable when no
        broker answers or lets us log in, or a quota holds the request back; Permanent when the cluster, or the client
        itself, refuses it.
        """
        attempts = Retrying(
            retry=retry_if_exception(_passing),
            stop=stop_all(
                stop_before_delay(self._patience), stop_after_attempt(LEAST_ATTEMPTS if self._per_broker else 1)
            ),
            wait=self._wait,
            reraise=True,
        )
        try:
            return attempts(self._send, request, arguments, allowed, options)
        except KafkaError as error:
            if self._held_back(error):
                raise self._over_quota(request) from error
            # A login that is refused may be of a password that is just being replaced.
            if _passing(error) or isinstance(error, SaslAuthenticationFailedError):
                raise self._unanswered(error, request) from error
            right = denials.right_of(request, _topics_of(arguments))
            raise self.refused(str(error), request, reason=type(error).__name__, right=right) from error

    def unanswered(self, why: str, request: str) -> Retryable:
        """The error for a cluster that may answer later."""
        return Retryable(
            f"Kafka cluster {self._cluster.name} at {self._cluster.bootstrap_servers} did not answer {request} "
            f"({why}); check the address and that its brokers run, then try again",
            after=1.0,
            reason=denials.NO_ANSWER,
        )

    def _unanswered(self, error: KafkaError, request: str) -> Retryable:
        why = handshake_failure(self._cluster) if self._client is None else ""
        return self.unanswered(why or type(error).__name__, request)

    def refused(self, why: str, request: str, *, reason: str, right: str = "") -> Permanent:
        """The error for a cluster that will answer the same again. `right` is what the request needs, see `denials`."""
        text = f"Kafka cluster {self._cluster.name} at {self._cluster.bootstrap_servers} refused {request}: {why}"
        if reason.endswith("AuthorizationFailedError"):
            text += denials.forbidden(self._cluster, right)
        return Permanent(text, reason=reason)

    def _over_quota(self, request: str) -> Retryable:
        text = denials.over_quota(self._cluster, request)
        return Retryable(text, after=max(self._delay(), 1.0), reason=denials.QUOTA_EXCEEDED)

    def _delay(self) -> float:
        """Seconds for which a quota keeps the client from sending to some broker."""
        delays = [net.throttle_delay(broker.node_id) for net in self._connections for broker in net.cluster.brokers()]
        return max(delays, default=0.0) / 1000

    def _held_back(self, error: BaseException) -> bool:
        """Whether a quota is why nothing was sent, or done."""
        if isinstance(error, ThrottlingQuotaExceededError):
            return True
        return isinstance(error, NodeNotReadyError) and self._delay() > 0

    def _wait(self, _: RetryCallState) -> float:
        return max(min(self._delay(), self._patience), RETRY_WAIT)

    def _send(self, request: str, arguments: tuple[Any, ...], allowed: Errors, options: Mapping[str, Any]) -> Any:
        if self._client is None:
            self._connections.clear()
            self._unconnected += 1
            self._client = connect(
                self._cluster, self._request_timeout_ms, self._connections, attempt=self._unconnected - 1
            )
            self._unconnected = 0
        try:
            return getattr(self._client, request)(*arguments, **options)
        except ValueError as error:  # the client itself refuses what no broker would accept
            raise self.refused(str(error), request, reason="InvalidRequest") from error
        except allowed:  # it is done already
            return None
        except KafkaError as error:
            # Another connection would be delayed all the same.
            silent = self._per_broker and isinstance(error, RequestTimedOutError)
            if not silent and not self._held_back(error):
                self.close()
            raise


def _passing(error: BaseException) -> bool:
    """Whether another attempt may fare better. A broker that the client does not know may have just returned."""
    return isinstance(error, UnknownBrokerIdError) or (isinstance(error, KafkaError) and error.retriable)


def _topics_of(arguments: tuple[Any, ...]) -> Collection[str]:
    """The topics that a request names first."""
    first = arguments[0] if arguments else ()
    return [name for name in first if isinstance(name, str)] if isinstance(first, (list, dict)) else []


class AdminClient(KafkaAdminClient):  # type: ignore[misc]
    """The admin client, with a request that it has for partitions of any leader only."""

    def list_led_offsets(self, broker: int, partitions: Mapping[ClientPartition, OffsetSpec]) -> dict[Any, int]:
        """The offsets of those of `partitions` for which `broker` answers with one.

        `list_partition_offsets` reads the metadata of every topic named first, which takes longer than the offsets.
        """
        request = self._list_partition_offsets_request(partitions, IsolationLevel.READ_UNCOMMITTED.value)
        response = self._manager.run(self._manager.send, request, broker)
        return {
            ClientPartition(topic.name, found.partition_index): found.offset
            for topic in response.topics
            for found in topic.partitions
            if not found.error_code
        }


def connect(
    cluster: KafkaCluster,
    request_timeout_ms: int = REQUEST_TIMEOUT_MS,
    connections: list[Any] | None = None,
    *,
    attempt: int = 0,
) -> Any:
    """A new admin client of the cluster. What holds its connections is added to `connections`.

    The client asks bootstrap servers at random: it soon finds another one for one that refuses, but waits for one that
    is frozen until its time is over. So after `attempt` failures it gets one of them, each time another.
    """
    servers = cluster.bootstrap_servers.split(",")
    patience_ms = min(CONNECT_TIMEOUT_MS, request_timeout_ms)
    made = connections if connections is not None else []

    def connected(**config: Any) -> Any:
        made.append(KafkaNetClient(**config, **dict.fromkeys(_SETUP_TIMES, patience_ms)))
        return made[-1]

    settings = cluster.client_config()
    options: dict[str, Any] = {
        "bootstrap_servers": servers if attempt == 0 else [servers[attempt % len(servers)]],
        "client_id": denials.CLIENT_ID,
        "kafka_client": connected,
        "security_protocol": settings["security.protocol"],
        "request_timeout_ms": request_timeout_ms,
        "bootstrap_timeout_ms": patience_ms,
    }
    if cluster.sasl:
        options["sasl_mechanism"] = cluster.sasl.mechanism
        options["sasl_plain_username"] = cluster.sasl.username
        options["sasl_plain_password"] = cluster.sasl.password.read()
    if cluster.tls:
        options["ssl_context"] = tls_context(cluster.tls)
    return AdminClient(**options)


def tls_context(tls: Tls) -> ssl.SSLContext:
    """The client side of TLS as configured."""
    context = ssl.create_default_context(cafile=str(tls.ca_file) if tls.ca_file else None)
    if not tls.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if tls.cert_file:
        password = tls.key_password.read() if tls.key_password else None
        context.load_cert_chain(tls.cert_file, tls.key_file, password)
    return context
