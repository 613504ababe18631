"""How a command reaches the admin APIs that a person names, or that of its own configuration."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from blockhouse.certificates import pinning, trusting
from blockhouse.config.pipeline import Admin
from blockhouse.config.secrets import SecretRef
from blockhouse.errors import Permanent


@dataclass(frozen=True, slots=True)
class AdminAccess:
    """`own` is the API of the configuration, by whose TLS an address without a scheme is asked, and whose token is that
    of all; `ca_file` has the authorities (PEM) of the other ones' certificates, the system's without it."""

    own: Admin | None = None
    token_file: Path | None = None
    ca_file: Path | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Of every request. Raises Permanent when the token cannot be read."""
        given = self.own.token if self.own is not None else None
        reference = SecretRef(file=self.token_file) if self.token_file is not None else given
        return {"Authorization": f"Bearer {reference.read()}"} if reference is not None else {}

    def url(self, address: str) -> str:
        """The URL of HOST:PORT or of a URL, without a slash at its end."""
        secure = self.ca_file is not None or (self.own is not None and self.own.tls is not None)
        return address.rstrip("/") if "://" in address else f"{'https' if secure else 'http'}://{address}"

    def trust(self, address: str) -> dict[str, Any]:
        """The arguments of a request of aiohttp to this address. Raises Permanent for authorities that are none."""
        own = self.own
        if own is not None and own.tls is not None and self.url(address) == own.url:
            return {"ssl": pinning(own.tls.cert_file)}
        if not self.url(address).startswith("https:"):
            return {}
        try:
            return {"ssl": trusting(self.ca_file.read_text() if self.ca_file is not None else "")}
        except (OSError, ValueError, ssl.SSLError) as error:
            text = f"{self.ca_file} has no certificates of authorities: {error}"
            raise Permanent(text, reason="NoAuthorities") from None
