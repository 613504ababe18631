"""References to Secrets and ConfigMaps of the resource's namespace. A secret itself is never in a resource."""

from __future__ import annotations

from blockhouse_operator.api.base import Key, ObjectName, Part


class ConfigMapKeyRef(Part):
    """One key of a ConfigMap."""

    name: ObjectName
    """Name of the ConfigMap."""
    key: Key
    """Key in it."""


class SecretKeyRef(Part):
    """One key of a Secret."""

    name: ObjectName
    """Name of the Secret."""
    key: Key
    """Key in it."""


class CaSecretRef(Part):
    """A certificate authority in a Secret."""

    name: ObjectName
    """Name of the Secret."""
    key: Key = "ca.crt"
    """Key of the PEM certificates."""


class PasswordSecretRef(Part):
    """A password in a Secret."""

    name: ObjectName
    """Name of the Secret."""
    key: Key = "password"
    """Key of the password."""


class TlsSecretRef(Part):
    """A client certificate in a Secret of type `kubernetes.io/tls` (keys `tls.crt` and `tls.key`)."""

    name: ObjectName
    """Name of the Secret."""


class AdminTls(Part):
    """TLS of the HTTP APIs that the operator asks."""

    secret_ref: TlsSecretRef
    """Their certificate, as cert-manager issues it; a renewed one counts without a restart."""
    ca_secret_ref: CaSecretRef | None = None
    """Authorities by which the operator knows them; those of its image without it."""


class LocalRef(Part):
    """An object of the same namespace."""

    name: ObjectName
    """Its name."""


class Tls(Part):
    """TLS of a client. An empty object turns it on with the system's authorities."""

    ca_secret_ref: CaSecretRef | None = None
    """Authorities to trust; without it those of the image."""
    client_secret_ref: TlsSecretRef | None = None
    """Client certificate, for mutual TLS."""
    verify: bool = True
    """Whether the server's certificate is verified."""
