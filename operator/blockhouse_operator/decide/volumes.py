"""How large a volume claim is to be: a volume can grow, and a larger size can be taken back until it has. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blockhouse.config.units import size_bytes


def claim_size(desired: str, live: Mapping[str, Any]) -> tuple[str, str]:
    """The size to ask for of a live claim, and why it is not the desired one; empty when it is, or will do.

    The API server accepts a smaller request only while it is above what the volume has, so a request that was taken
    back to exactly that is left in place: a refused write helps no one.
    """
    asked = str((((live.get("spec") or {}).get("resources") or {}).get("requests") or {}).get("storage", ""))
    has = str(((live.get("status") or {}).get("capacity") or {}).get("storage", ""))
    wished, present, actual = _bytes(desired), _bytes(asked), _bytes(has)
    if wished is None or present is None or wished >= present:
        return desired, ""
    if actual is None or wished > actual:
        return desired, ""
    if wished == actual:
        return asked, ""
    return asked, f"volume claim {live['metadata']['name']} has {has}, the spec has {desired}: a volume cannot shrink"


def _bytes(size: str) -> int | None:
    """None for a unit that no size of ours has."""
    try:
        return size_bytes(size)
    except ValueError:
        return None
