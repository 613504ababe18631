"""Which requests come from a page of another site that is open in a browser: asked where no token protects the answers.

Such a page reaches what listens on loopback, and by DNS rebinding, a name of its own that leads to 127.0.0.1, may
read it. Browsers name the host that they believe they ask, and in newer ones where a request is from; programs are
not refused for what they leave out. Pure.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping
from urllib.parse import urlsplit

_OWN = ("same-origin", "none")
"""`Sec-Fetch-Site` of the page itself, and of what a person typed."""


def refusal(headers: Mapping[str, str]) -> str:
    """Why the request is not answered, for the person who reads the answer; empty when it is.

    `headers` are those of the request, found in any spelling.
    """
    host = headers.get("Host", "")
    if host and not _own_name(host):
        return f"the request is for host {host}: use 127.0.0.1 or localhost, or set a token (admin.token)"
    origin = headers.get("Origin")
    if origin is not None and urlsplit(origin).netloc.lower() != host.lower():
        return f"the request is from a page of {origin}: other sites may read this only with a token (admin.token)"
    if (site := headers.get("Sec-Fetch-Site", "none")) not in _OWN:
        return f"the request is from a page of another site ({site}): open this address by itself"
    return ""


def _own_name(host: str) -> bool:
    """A name that no stranger can lead here: an address, or localhost."""
    try:
        name = urlsplit(f"//{host}").hostname or ""
    except ValueError:  # brackets without an address in them
        return False
    return name == "localhost" or _is_address(name)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True
