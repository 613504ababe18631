"""Secrets of the resources' namespaces, as files that the client libraries can read.

A client takes certificates as files, so each is written to a private folder that goes when the operator ends. Contents
are read again at every reconcile: a rotated password counts without a restart. Nothing here is ever logged.
"""

from __future__ import annotations

import base64
import binascii
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from blockhouse.config.endpoints import KafkaCluster, Sasl, Tls, ZooKeeper
from blockhouse.config.secrets import SecretRef
from blockhouse.fleet.load.settings import LoadSettings
from blockhouse_operator.adapters.kinds import CONFIG_MAP, SECRET, Object
from blockhouse_operator.adapters.pipeline_http import AdminLogin
from blockhouse_operator.adapters.shared_objects import Objects
from blockhouse_operator.api import kafka, names
from blockhouse_operator.api.declared import given
from blockhouse_operator.api.load import ThrottleLoad
from blockhouse_operator.api.parts import Table
from blockhouse_operator.api.references import AdminTls, CaSecretRef
from blockhouse_operator.api.references import Tls as GivenTls
from blockhouse_operator.api.shard import ShardEnsemble
from blockhouse_operator.decide.reassignment_throttle import load_settings
from blockhouse_operator.decide.references import Reference


class Contents:
    """The Secrets and ConfigMaps of one namespace that one reconcile needs, each read once."""

    def __init__(self, source: Objects, namespace: str, folder: Path) -> None:
        self._source = source
        self._namespace = namespace
        self._folder = folder / namespace
        self._objects: dict[tuple[str, str], Object | None] = {}

    async def read(self, references: Iterable[Reference]) -> tuple[str, ...]:
        """Read them; returns what is missing, in words."""
        missing = []
        for reference in references:
            place = (reference.kind, reference.name)
            if place not in self._objects:
                kind = SECRET if reference.kind == "Secret" else CONFIG_MAP
                self._objects[place] = await self._source.get(kind, self._namespace, reference.name)
            found = self._objects[place]
            if found is None:
                missing.append(f"{reference.kind} {reference.name} does not exist")
            elif reference.key not in (found.get("data") or {}):
                missing.append(f"{reference.kind} {reference.name} has no key {reference.key}")
        return tuple(dict.fromkeys(missing))

    def text(self, name: str, key: str, kind: Literal["Secret", "ConfigMap"] = "Secret") -> str | None:
        """The value of a key that was read; None when it is missing."""
        found = self._objects.get((kind, name))
        value = ((found or {}).get("data") or {}).get(key)
        if value is None or kind == "ConfigMap":
            return value
        try:
            return base64.b64decode(value).decode()
        except (binascii.Error, UnicodeDecodeError):
            return None

    def found(self, references: Iterable[Reference]) -> dict[Reference, str]:
        """The values that were read, as Kubernetes encodes them, without those that are missing."""
        data = {each: (self._objects.get((each.kind, each.name)) or {}).get("data") or {} for each in references}
        return {each: values[each.key] for each, values in data.items() if each.key in values}

    async def object(self, name: str) -> Object | None:
        """A Secret, read once; None when it does not exist."""
        place = ("Secret", name)
        if place not in self._objects:
            self._objects[place] = await self._source.get(SECRET, self._namespace, name)
        return self._objects[place]

    def admin_login(self, pipeline: str, tls: AdminTls | None) -> AdminLogin:
        """For a pipeline's admin APIs, whose Secrets were read. While the token is replaced, also the one before it: a
        server accepts the new one once it has read it."""
        name, ca = names.internal_secret(pipeline), tls.ca_secret_ref if tls is not None else None
        tokens = (self.text(name, "token"), self.text(name, "former-token"))
        return AdminLogin("\n".join(token for token in tokens if token), self.authorities(ca))

    def reading_tokens(self, pipeline: str) -> str:
        """The tokens that only read, of a pipeline whose Secret was read, each on a line: first the one to use."""
        name = names.read_secret(pipeline)
        tokens = (self.text(name, "token"), self.text(name, "other-token"))
        return "\n".join(token for token in tokens if token)

    def authorities(self, given: CaSecretRef | None) -> str:
        """The certificates that were read; empty where none are given. Where they are missing, a text that no client
        accepts: those of the system must not stand in for them."""
        if given is None:
            return ""
        return self.text(given.name, given.key) or f"Secret {given.name} has no {given.key}"

    def declaration(self, table: Table) -> str | None:
        """The DDL of a table, from the spec or from the ConfigMap it refers to; None where there is none."""
        if table.ddl_from is None:
            return table.ddl
        reference = table.ddl_from.config_map_key_ref
        return self.text(reference.name, reference.key, "ConfigMap")

    def file(self, name: str, key: str, kind: Literal["Secret", "ConfigMap"] = "Secret") -> Path:
        """A private file with the value of a key; raises KeyError when it is missing."""
        text = self.text(name, key, kind)
        if text is None:
            raise KeyError(f"{name}/{key}")
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = self._folder / (f"{name}.{key}" if kind == "Secret" else f"{name}.{key}.configmap")
        if not path.exists() or path.read_text() != text:
            fresh = path.with_suffix(path.suffix + ".new")
            fresh.unlink(missing_ok=True)
            with os.fdopen(os.open(fresh, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as out:
                out.write(text)
            fresh.replace(path)
        return path

    def version(self) -> str:
        """Changes whenever a content changes."""
        return ",".join(
            f"{name}:{(found or {}).get('metadata', {}).get('resourceVersion', '')}"
            for (_, name), found in sorted(self._objects.items())
        )

    def kafka(self, cluster: kafka.KafkaCluster) -> KafkaCluster:
        """How to reach a Kafka cluster. Raises KeyError when a Secret was missing."""
        sasl = None
        if cluster.sasl is not None:
            secret = cluster.sasl.secret_ref
            sasl = Sasl(
                mechanism=cluster.sasl.mechanism,
                username=cluster.sasl.username,
                password=SecretRef(file=self.file(secret.name, secret.key)),
            )
        tls = self.tls(cluster.tls) if cluster.tls is not None else None
        return KafkaCluster(name=cluster.name, bootstrap_servers=cluster.bootstrap_servers, tls=tls, sasl=sasl)

    def zookeeper(self, spec: ShardEnsemble) -> ZooKeeper:
        """How to reach a shard's ensemble. Raises KeyError when a Secret was missing."""
        auth = spec.auth
        return ZooKeeper(
            servers=",".join(spec.servers),
            root=spec.root,
            username=auth.username if auth is not None else None,
            password=SecretRef(file=self.file(auth.secret_ref.name, auth.secret_ref.key)) if auth is not None else None,
            tls=self.tls(spec.tls) if spec.tls is not None else None,
            **given(spec, ZooKeeper),
        )

    def tls(self, tls: GivenTls) -> Tls:
        """TLS of a client with its certificates as files. Raises KeyError when a Secret was missing."""
        ca, client = tls.ca_secret_ref, tls.client_secret_ref
        return Tls(
            ca_file=self.file(ca.name, ca.key) if ca else None,
            cert_file=self.file(client.name, "tls.crt") if client else None,
            key_file=self.file(client.name, "tls.key") if client else None,
            verify=tls.verify,
        )

    def load(self, load: ThrottleLoad) -> LoadSettings:
        """How to read the load of a Kafka cluster. Raises KeyError when a Secret or ConfigMap was missing."""
        prometheus = load.prometheus if load.source == "Prometheus" else None
        token = prometheus.bearer_token_secret_ref if prometheus is not None else None
        given = load.static.config_map_key_ref if load.source == "Static" and load.static is not None else None
        return load_settings(
            load,
            bearer_token=self.file(token.name, token.key) if token else None,
            tls=self.tls(prometheus.tls) if prometheus is not None and prometheus.tls is not None else None,
            static=self.file(given.name, given.key, "ConfigMap") if given else None,
        )
