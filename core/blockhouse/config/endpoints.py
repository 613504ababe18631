"""How to reach the servers: Kafka clusters, ClickHouse, ZooKeeper; with TLS and SASL everywhere."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from blockhouse.config.base import Settings
from blockhouse.config.secrets import SecretRef

NAME = r"^[a-z0-9]([a-z0-9-]{0,30}[a-z0-9])?$"
"""Names that end up in metadata, tokens and provenance: short, ASCII, as Kubernetes names."""


class Tls(Settings):
    """TLS of a client: files, as mounted from Secrets. Without `ca_file` the system's authorities are trusted."""

    ca_file: Path | None = None
    cert_file: Path | None = None
    key_file: Path | None = None
    key_password: SecretRef | None = None
    verify: bool = True


class Sasl(Settings):
    mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]
    username: str
    password: SecretRef


class KafkaCluster(Settings):
    """One independent Kafka cluster. `name` is part of every row's provenance and must never change."""

    name: str = Field(pattern=NAME)
    bootstrap_servers: str = Field(min_length=1)
    tls: Tls | None = None
    sasl: Sasl | None = None

    def client_config(self) -> dict[str, str | int | float | bool]:
        """librdkafka settings to connect, secrets included: keep them out of logs."""
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
            config["sasl.password"] = self.sasl.password.read()
        return config


class ClickHouse(Settings):
    """The replica an aggregator inserts into, over the native protocol."""

    host: str = "127.0.0.1"
    port: int = Field(default=9000, ge=1, le=65535)
    database: str = "default"
    user: str = "default"
    password: SecretRef | None = None
    tls: Tls | None = None
    connect_timeout_seconds: float = Field(default=5, gt=0)


class ZooKeeper(Settings):
    """The ensemble of the shard: locks, schema history, markers, and ClickHouse's own replication.

    `root` is the pipeline's own subtree. `servers` is `host:port[,host:port...]`.
    """

    servers: str = Field(min_length=1)
    root: str = Field(default="/blockhouse", pattern=r"^/[^/].*[^/]$")
    session_timeout_seconds: float = Field(default=10, ge=1)
    username: str | None = None
    password: SecretRef | None = None
