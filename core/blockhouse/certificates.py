"""TLS of our own HTTP APIs: a certificate that is read again when it was renewed, and how clients know it."""

from __future__ import annotations

import os
import ssl
from functools import lru_cache
from pathlib import Path
from typing import Any

import structlog

from blockhouse.errors import Permanent

log = structlog.get_logger(__name__)


class ServerCertificate:
    """The certificate and key (PEM) of a server. Raises Permanent `CertificateUnusable` when they cannot be used at the
    start; later, while they cannot, connections get the last ones that could."""

    def __init__(self, cert_file: Path, key_file: Path) -> None:
        self._files = (cert_file, key_file)
        self._version = self._written()
        try:
            self._present = self._read()
        except (OSError, ssl.SSLError) as error:
            text = f"the certificate {cert_file} with the key {key_file} cannot be used: {error}"
            raise Permanent(text, reason="CertificateUnusable") from error

    def context(self) -> ssl.SSLContext:
        """For a listening socket: every handshake gets the certificate that the files have then."""
        found = self._read()
        found.sni_callback = self._choose
        return found

    def _choose(self, connection: ssl.SSLObject, _name: str | None, _context: ssl.SSLContext) -> None:
        """Asked at every handshake, also without a name."""
        version = self._written()
        if version != self._version:
            self._version = version
            try:
                self._present = self._read()
            except (OSError, ssl.SSLError) as error:
                log.warning("certificate.not_read", file=str(self._files[0]), error=str(error))
            else:
                log.info("certificate.read_again", file=str(self._files[0]))
        connection.context = self._present

    def _written(self) -> tuple[Any, ...]:
        """Changes with the files; a mounted Secret is replaced as a whole, by another inode."""
        found: list[tuple[int, ...] | None] = []
        for file in self._files:
            try:
                stat = os.stat(file)
                found.append((stat.st_ino, stat.st_mtime_ns, stat.st_size))
            except OSError:
                found.append(None)
        return tuple(found)

    def _read(self) -> ssl.SSLContext:
        found = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        found.minimum_version = ssl.TLSVersion.TLSv1_2
        found.load_cert_chain(*self._files)
        return found


@lru_cache(maxsize=64)
def trusting(authorities: str) -> ssl.SSLContext:
    """A client that knows servers by these authorities (PEM), by the system's if empty; their names must fit. One for
    all requests, for it is expensive to create. Raises ValueError or ssl.SSLError for what is no PEM."""
    return ssl.create_default_context(cadata=authorities or None)


def pinning(cert_file: Path) -> ssl.SSLContext:
    """A client of the process beside it: the server must have the very certificate of the file, whatever its name."""
    found = ssl.create_default_context(cafile=str(cert_file))
    found.check_hostname = False
    found.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    return found
