"""How to reach the servers: Kafka clusters, ClickHouse, ZooKeeper; with TLS and SASL everywhere."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from blockhouse.config.base import Settings, SettingsWithFiles
from blockhouse.config.files import unreadable
from blockhouse.config.secrets import SecretRef
from blockhouse.config.units import Duration
from blockhouse.errors import Retryable

NAME = r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$"
"""Names that end up in metadata, tokens and provenance: short, ASCII, as Kubernetes names."""
_SERVER = r"(\[[0-9A-Fa-f:]+\]|[A-Za-z0-9._-]+):[0-9]{1,5}"
SERVERS = f"^ *{_SERVER} *(, *{_SERVER} *)*$"
"""`host:port[,host:port...]`, with spaces around the commas or not."""


class Tls(SettingsWithFiles):
    """TLS of a client: files, as mounted from Secrets. `tls: {}` alone turns it on."""

    ca_file: Path | None = None
    """Authorities to trust; without it the system's. Giving `tls: {}` alone turns TLS on."""
    cert_file: Path | None = None
    """Client certificate."""
    key_file: Path | None = None
    """Its key."""
    key_password: SecretRef | None = None
    """The key's password."""
    verify: bool = True
    """Whether the server's certificate is verified."""


class Sasl(Settings):
    """SASL login."""

    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    """SASL mechanism."""
    username: str
    """User."""
    password: SecretRef
    """The password."""


def host_and_port(servers: str) -> str:
    """The servers, each `host:port`. Raises ValueError."""
    for server in servers.split(","):
        if not re.fullmatch(_SERVER, server.strip()):
            raise ValueError(f"{server.strip()!r} is not host:port; give host:port[,host:port...] without a scheme")
    return servers


class KafkaCluster(Settings):
    """One independent Kafka cluster."""

    name: str = Field(pattern=NAME)
    """Part of every row's provenance (`_kafka_cluster`). Never change it."""
    bootstrap_servers: Annotated[str, Field(min_length=1), AfterValidator(host_and_port)]
    """`host:port[,host:port...]`."""
    tls: Tls | None = None
    """TLS."""
    sasl: Sasl | None = None
    """SASL login."""

    @property
    def addresses(self) -> frozenset[str]:
        """Each `host:port` of the bootstrap servers, in lower case as names of hosts are compared."""
        return frozenset(server.strip().lower() for server in self.bootstrap_servers.split(","))

    def client_config(self) -> dict[str, str | int | float | bool]:
        """librdkafka settings to connect, secrets included: keep them out of logs. Raises Retryable for a file of them
        that cannot be read and for an empty password: the client would not name it."""
        if problem := unreadable(self):
            raise Retryable(problem, after=1.0, reason="SecretMissing")
        protocol = ("SASL_" if self.sasl else "") + ("SSL" if self.tls else "PLAINTEXT")
        config: dict[str, str | int | float | bool] = {
            "bootstrap.servers": self.bootstrap_servers,
            "security.protocol": protocol,
        }
        if self.tls:
            config["enable.ssl.certificate.verification"] = self.tls.verify
            for key, path in (
                ("ssl.ca.location", self.tls.ca_file),
                ("ssl.certificate.location", self.tls.cert_file),
                ("ssl.key.location", self.tls.key_file),
            ):
                if path is not None:
                    config[key] = str(path)
            if self.tls.key_password:
                config["ssl.key.password"] = self.tls.key_password.read()
        if self.sasl:
            config["sasl.mechanisms"] = self.sasl.mechanism
            config["sasl.username"] = self.sasl.username
            config["sasl.password"] = password = self.sasl.password.read()
            if not password:
                where = f"{self.sasl.password.where}, the password of Kafka cluster {self.name},"
                raise Retryable(f"{where} is empty; write it there", after=1.0, reason="SecretMissing")
        return config


class ClickHouse(Settings):
    """The replica an aggregator inserts into, over the native protocol."""

    host: str = "127.0.0.1"
    """The replica's own server, native protocol."""
    port: int = Field(default=9000, ge=1, le=65535)
    """Its native port."""
    database: str = Field(default="default", min_length=1, max_length=128)
    """Database of tables whose header names none."""
    user: str = Field(default="default", min_length=1, max_length=64)
    """User."""
    password: SecretRef | None = None
    """The password."""
    tls: Tls | None = None
    """TLS."""
    connect_timeout_seconds: Duration = Field(default=5, ge=0.001, le=600)
    """How long until a connection attempt counts as failed."""


class ZooKeeper(Settings):
    """The ensemble of the shard: locks, schema history, markers, and ClickHouse's own replication."""

    servers: str = Field(min_length=1)
    """`host:port[,host:port...]` of the shard's ensemble."""
    root: str = Field(default="/blockhouse", pattern=r"^/[^/].*[^/]$")
    """Subtree of the pipeline."""
    session_timeout_seconds: Duration = Field(default=10, ge=1, le=3600)
    """How long until the locks of a dead aggregator are released."""
    username: str | None = None
    """User of the digest scheme."""
    password: SecretRef | None = None
    """The password."""
    tls: Tls | None = None
    """TLS, to the servers' `secureClientPort`."""

    def client_arguments(self) -> dict[str, Any]:
        """Arguments of kazoo's client, secrets included: keep them out of logs. It reads certificates again whenever
        it connects."""
        arguments: dict[str, Any] = {"hosts": self.servers, "timeout": self.session_timeout_seconds}
        if self.username is not None:
            password = self.password.read() if self.password else ""
            arguments["auth_data"] = [("digest", f"{self.username}:{password}")]
        if self.tls is not None:
            arguments |= {"use_ssl": True, "verify_certs": self.tls.verify, "check_hostname": self.tls.verify}
            files = {"ca": self.tls.ca_file, "certfile": self.tls.cert_file, "keyfile": self.tls.key_file}
            arguments |= {name: str(path) for name, path in files.items() if path is not None}
            if self.tls.key_password:
                arguments["keyfile_password"] = self.tls.key_password.read()
        return arguments
