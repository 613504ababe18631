"""How the operator knows the servers that it asks by TLS."""

from __future__ import annotations

import ssl
from typing import Any

from blockhouse.certificates import trusting
from blockhouse.errors import Retryable


def trust(url: str, authorities: str) -> dict[str, Any]:
    """The arguments of a request of aiohttp to this URL. `authorities` are PEM, the system's if empty. Raises Retryable
    where they are none, as `Contents.authorities` has for a Secret that is missing: nothing is sent then."""
    if not url.startswith("https:"):
        return {}
    try:
        return {"ssl": trusting(authorities)}
    except (ValueError, ssl.SSLError) as error:
        text = f"{url} is not asked, for what its certificate is to be verified by is none: {error}"
        raise Retryable(text, after=30.0) from None
