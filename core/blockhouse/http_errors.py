"""Why an HTTP request got no answer, in words for people: aiohttp names its own classes and settings instead."""

from __future__ import annotations

import os
import ssl

import aiohttp


def no_answer(error: BaseException, seconds: float) -> str:
    """For example `connection refused`, for what a request of at most `seconds` seconds raised."""
    if isinstance(error, TimeoutError):
        return f"no answer in {seconds:g} s"
    if isinstance(error, aiohttp.InvalidURL):
        return "no valid address"
    if isinstance(error, aiohttp.ClientConnectorCertificateError):
        return f"its certificate is not accepted: {error.certificate_error}"
    if isinstance(error, aiohttp.ServerFingerprintMismatch):
        return "its certificate is not that of the configuration"
    cause = error.os_error if isinstance(error, aiohttp.ClientConnectorError) else error
    if isinstance(cause, ssl.SSLError):
        return f"TLS failed: {cause.reason or cause}"
    if isinstance(cause, OSError) and cause.errno is not None and cause.errno > 0:
        return os.strerror(cause.errno).lower()
    if isinstance(cause, OSError) and cause.strerror:  # of a name that cannot be resolved: a number of its own
        return cause.strerror.lower()
    return str(error) or type(error).__name__
