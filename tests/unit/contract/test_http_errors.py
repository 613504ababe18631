"""Why a request got no answer: words that need no server to be seen."""

from __future__ import annotations

import errno
import socket
import ssl
from unittest.mock import Mock

import aiohttp
import pytest

from blockhouse.http_errors import no_answer

REFUSED = OSError(errno.ECONNREFUSED, "Connect call failed ('127.0.0.1', 1)")
UNKNOWN_HOST = socket.gaierror(socket.EAI_NONAME, "Name or service not known")
CERTIFICATE = ssl.SSLCertVerificationError(1, "unable to get local issuer certificate")


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (aiohttp.ClientConnectorError(Mock(), REFUSED), "connection refused"),
        (aiohttp.ClientConnectorDNSError(Mock(), UNKNOWN_HOST), "name or service not known"),
        (aiohttp.ClientOSError(errno.ECONNRESET, "Connection reset by peer"), "connection reset by peer"),
        (aiohttp.ClientConnectorCertificateError(Mock(), CERTIFICATE), "its certificate is not accepted: "),
        (aiohttp.ServerFingerprintMismatch(b"1", b"2", "h", 1), "its certificate is not that of the configuration"),
        (aiohttp.ServerTimeoutError(), "no answer in 4 s"),
        (aiohttp.ServerDisconnectedError(), "Server disconnected"),
        (aiohttp.ClientPayloadError(), "ClientPayloadError"),
    ],
    ids=lambda value: type(value).__name__,
)
def test_words_for(error: BaseException, words: str) -> None:
    assert no_answer(error, 4.0).startswith(words)
