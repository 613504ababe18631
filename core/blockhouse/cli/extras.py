"""How to install what a command lacks. Blockhouse is in no package index, and its name there is another project's."""

from __future__ import annotations

import json
from importlib.metadata import PackageNotFoundError, distribution
from urllib.parse import unquote, urlsplit


def how_to_install(extra: str) -> str:
    """What to do so that the extra (`a`, or several as `a,b`) is there.

    It never gives pip the bare name, which pip would look up in an index.
    """
    place = _installed_from()
    source = "the checkout or wheel that it came from" if place is None else "where it came from"
    return (
        f"install Blockhouse with the extra [{extra}] from {source}: "
        f"pip install '{place or '/path/to/blockhouse'}[{extra}]'"
    )


def _installed_from() -> str | None:
    """The folder or file that pip has recorded (PEP 610); None when there is none on a disk."""
    try:
        recorded = distribution("blockhouse").read_text("direct_url.json")
    except PackageNotFoundError:
        return None
    url = urlsplit(json.loads(recorded or "{}").get("url", ""))
    return unquote(url.path) if url.scheme == "file" else None
