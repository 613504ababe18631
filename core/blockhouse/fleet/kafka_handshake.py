"""Why a Kafka cluster that answers nothing answers nothing, where TLS or a login are the reason.

kafka-python keeps the reason of a connection that fails to itself and reports a timeout; librdkafka names it.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from blockhouse.config.endpoints import KafkaCluster
from blockhouse.errors import BlockhouseError

_TRIES, _SECONDS = 6, 0.5
_TLS = "check the authority of `tls`, the client's certificate, and the names in those of the brokers"
_LOGIN = "check SASL mechanism, user and password"


def handshake_failure(cluster: KafkaCluster) -> str:
    """What brokers, or we, refuse before any request, with advice; empty where that is not why. Takes three seconds at
    most. Names no secret."""
    if cluster.tls is None and cluster.sasl is None:
        return ""
    heard: list[KafkaError] = []
    config: dict[str, Any] = {**cluster.client_config(), "error_cb": heard.append, "log_level": 0}
    try:
        client = AdminClient(config)
        for _ in range(_TRIES):
            with suppress(KafkaException):
                client.list_topics(timeout=_SECONDS)
                return ""
            client.poll(0)
            for error in heard:
                if advice := _advice(error):
                    return f"{error.str()}; {advice}"
    except (KafkaException, BlockhouseError):  # of settings or a secret: the caller has met it already
        pass
    return ""


def _advice(error: KafkaError) -> str:
    """Empty for what is no matter of a handshake. A broker that misses our certificate reports it after the handshake,
    as an end of the connection."""
    if error.code() == KafkaError._SSL or "SSL routines" in error.str():
        return _TLS
    return _LOGIN if error.code() == KafkaError._AUTHENTICATION else ""
