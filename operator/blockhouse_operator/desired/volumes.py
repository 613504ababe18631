"""Where Secrets are mounted, and the settings that point there: files, so that a rotated Secret needs no restart."""

from __future__ import annotations

from typing import Any

from blockhouse.config import endpoints
from blockhouse.config.secrets import SecretRef
from blockhouse_operator.api.clickhouse import ServerTls
from blockhouse_operator.api.kafka import KafkaServers
from blockhouse_operator.api.parts import Ensemble
from blockhouse_operator.api.references import AdminTls, PasswordSecretRef, Tls

ROOT = "/etc/blockhouse"
INTERNAL = "internal"
TOKEN = f"{ROOT}/{INTERNAL}/token"
CONFIG = f"{ROOT}/config"
SUSPEND = f"{CONFIG}/suspend"
"""Read every second by the aggregator, so that it can be suspended without a restart."""
CLICKHOUSE, ZOOKEEPER, SERVER, ADMIN_TLS = "clickhouse-login", "zookeeper-login", "clickhouse-tls", "admin-tls"


class Login:
    """The Secrets of one connection, projected into one folder: `ca.crt`, `tls.crt`, `tls.key`, `password`."""

    def __init__(self, name: str, tls: Tls | None, password: PasswordSecretRef | None) -> None:
        self.name = name
        self._tls = tls
        self._password = password
        self._folder = f"{ROOT}/{name}"

    @property
    def sources(self) -> list[dict[str, Any]]:
        """The sources of a projected volume; empty when nothing is secret."""
        found = []
        if self._tls and (ca := self._tls.ca_secret_ref):
            found.append(_source(ca.name, {ca.key: "ca.crt"}))
        if self._tls and (client := self._tls.client_secret_ref):
            found.append(_source(client.name, {"tls.crt": "tls.crt", "tls.key": "tls.key"}))
        if self._password:
            found.append(_source(self._password.name, {self._password.key: "password"}))
        return found

    def volume(self) -> dict[str, Any]:
        return {"name": self.name, "projected": {"defaultMode": 0o440, "sources": self.sources}}

    def mount(self) -> dict[str, Any]:
        return {"name": self.name, "mountPath": self._folder, "readOnly": True}

    def tls(self) -> endpoints.Tls | None:
        """The client's settings, with the paths in the container."""
        if self._tls is None:
            return None
        files: dict[str, Any] = {}
        if self._tls.ca_secret_ref:
            files["caFile"] = f"{self._folder}/ca.crt"
        if self._tls.client_secret_ref:
            files |= {"certFile": f"{self._folder}/tls.crt", "keyFile": f"{self._folder}/tls.key"}
        return endpoints.Tls.model_validate({"verify": self._tls.verify, **files})

    def password(self) -> SecretRef | None:
        return SecretRef.model_validate({"file": f"{self._folder}/password"}) if self._password else None


def _source(secret: str, files: dict[str, str]) -> dict[str, Any]:
    return {"secret": {"name": secret, "items": [{"key": key, "path": path} for key, path in files.items()]}}


def kafka_login(cluster: KafkaServers) -> Login:
    """The Secrets of a Kafka cluster."""
    return Login(f"kafka-{cluster.name}", cluster.tls, cluster.sasl.secret_ref if cluster.sasl else None)


def zookeeper_login(ensemble: Ensemble) -> Login:
    """The Secrets of a ZooKeeper ensemble."""
    return Login(ZOOKEEPER, ensemble.tls, ensemble.auth.secret_ref if ensemble.auth else None)


def server_certificates(tls: ServerTls) -> Login:
    """The certificate of a managed ClickHouse, and the authorities it trusts."""
    return Login(SERVER, Tls(ca_secret_ref=tls.ca_secret_ref, client_secret_ref=tls.secret_ref), None)


def admin_certificate(tls: AdminTls | None) -> Login:
    """The certificate of an admin API."""
    return Login(ADMIN_TLS, Tls(client_secret_ref=tls.secret_ref) if tls is not None else None, None)


def kafka_settings(cluster: KafkaServers) -> endpoints.KafkaCluster:
    """What a client in a pod needs to connect to a Kafka cluster."""
    login, sasl = kafka_login(cluster), None
    password = login.password()
    if cluster.sasl and password:
        sasl = endpoints.Sasl(mechanism=cluster.sasl.mechanism, username=cluster.sasl.username, password=password)
    return endpoints.KafkaCluster(
        name=cluster.name, bootstrap_servers=cluster.bootstrap_servers, tls=login.tls(), sasl=sasl
    )


def internal_volume(secret: str) -> dict[str, Any]:
    """The token of the admin API, from the Secret that the operator makes."""
    return {
        "name": INTERNAL,
        "secret": {"secretName": secret, "defaultMode": 0o440, "items": [{"key": "token", "path": "token"}]},
    }


def internal_mount() -> dict[str, Any]:
    return {"name": INTERNAL, "mountPath": f"{ROOT}/{INTERNAL}", "readOnly": True}
