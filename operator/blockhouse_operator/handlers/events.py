"""kopf's handlers: an event is a hint that a key is due, and nothing else.

Shards, of which there are thousands, and all children have watches of our own (`adapters.watch`); so has everything
where namespaces are named, for kopf stops a watch for good that is refused, and ends the process.

Only `on.event`: kopf's other handlers put finalizers and annotations on resources, and a finalizer of an operator that
is gone keeps a namespace from being deleted.
"""

from __future__ import annotations

from typing import Any

import kopf
from kubernetes.aio.client import Configuration

from blockhouse_operator.adapters.kinds import BLOCK_AGGREGATOR, KAFKA_MIRROR, KAFKA_REASSIGNMENT
from blockhouse_operator.adapters.watch import Observed
from blockhouse_operator.api.labels import GROUP, VERSION

BY_KOPF = (BLOCK_AGGREGATOR, KAFKA_REASSIGNMENT, KAFKA_MIRROR)
SERVER_SECONDS = 240
CLIENT_SECONDS = 300


def registry_of(observed: Observed, configuration: Configuration) -> kopf.OperatorRegistry:
    """kopf's registry with our handlers; nothing global is touched."""
    registry = kopf.OperatorRegistry()

    @kopf.on.login(registry=registry)
    def login(**context: Any) -> kopf.ConnectionInfo | None:
        found = kopf.login_with_service_account(**context)
        return found or connection(configuration)

    for kind in BY_KOPF:

        @kopf.on.event(GROUP, VERSION, kind.plural, registry=registry)
        def note(type: str | None, body: kopf.Body, **_: Any) -> None:
            observed(type or "", body)

    return registry


def connection(configuration: Configuration) -> kopf.ConnectionInfo:
    """The same way to the API server that the operator's own client goes."""
    token = (configuration.api_key or {}).get("BearerToken", "")
    return kopf.ConnectionInfo(
        server=configuration.host,
        ca_path=configuration.ssl_ca_cert,
        insecure=not configuration.verify_ssl,
        certificate_path=configuration.cert_file,
        private_key_path=configuration.key_file,
        token=token.removeprefix("Bearer ").removeprefix("bearer ") or None,
    )


def settings_of() -> kopf.OperatorSettings:
    """No Events of kopf's own, no peering, no scan of CRDs (which would need more rights), watches that end."""
    settings = kopf.OperatorSettings()
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.watching.server_timeout = SERVER_SECONDS
    settings.watching.client_timeout = CLIENT_SECONDS
    settings.watching.connect_timeout = 15
    settings.networking.request_timeout = 60
    return settings
