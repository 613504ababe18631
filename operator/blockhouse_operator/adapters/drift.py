"""Whether what we own of an object is as we want it: an apply that would change nothing is still a request.

An object is compared as server-side apply does: every field we give must be there with our value, and no field may
still be owned by us that we no longer give. What others own, and what the server filled in, is none of our business.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from typing import Any

_QUANTITY = re.compile(r"^([0-9.]+)(n|u|m|k|M|G|T|P|E|Ki|Mi|Gi|Ti|Pi|Ei)?$")
_FACTORS = {
    **{unit: Decimal(10) ** power for unit, power in zip(("n", "u", "m"), (-9, -6, -3), strict=True)},
    **{unit: Decimal(1000) ** power for power, unit in enumerate(("", "k", "M", "G", "T", "P", "E"))},
    **{unit: Decimal(1024) ** power for power, unit in enumerate(("Ki", "Mi", "Gi", "Ti", "Pi", "Ei"), 1)},
}
_QUANTITY_FIELDS = frozenset({"limits", "requests", "capacity", "sizeLimit"})
_KEYS = ("name", "mountPath", "containerPort", "port", "key", "uid", "type", "topologyKey")
"""What distinguishes the items of a list, first match; as the list types of the Kubernetes API have it."""

_SERVER_ONLY = frozenset({"apiVersion", "kind"})


def drifted(desired: Mapping[str, Any], live: Mapping[str, Any], manager: str) -> tuple[str, ...]:
    """Paths of what differs, such as `.spec.replicas`; empty when an apply by `manager` would change nothing."""
    return (*_missing(desired, live, ""), *_abandoned(desired, live, manager))


def _missing(desired: Any, live: Any, path: str) -> Iterator[str]:
    if isinstance(desired, Mapping) and isinstance(live, Mapping):
        for key, value in desired.items():
            if path or key not in _SERVER_ONLY:
                yield from _missing(value, live.get(key), f"{path}.{key}")
    elif isinstance(desired, (list, tuple)) and isinstance(live, list) and desired:
        yield from _missing_items(desired, live, path)
    elif not _same(desired, live, path):
        yield path


def _missing_items(desired: Sequence[Any], live: Sequence[Any], path: str) -> Iterator[str]:
    key = _item_key(desired)
    if key is None:
        if len(desired) != len(live):
            yield path
            return
        for number, (item, found) in enumerate(zip(desired, live, strict=True)):
            yield from _missing(item, found, f"{path}[{number}]")
        return
    by_key = {found.get(key): found for found in live if isinstance(found, Mapping)}
    for item in desired:
        where = f"{path}[{key}={item[key]}]"
        if item[key] in by_key:
            yield from _missing(item, by_key[item[key]], where)
        else:
            yield where


def _item_key(items: Sequence[Any]) -> str | None:
    if not all(isinstance(item, Mapping) for item in items):
        return None
    for key in _KEYS:
        if all(key in item for item in items) and len({item[key] for item in items}) == len(items):
            return key
    return None


def _same(desired: Any, live: Any, path: str) -> bool:
    if desired == live:
        return True
    if live is None:
        # The server may store no empty value: `emptyDir` of {} stays, `labels` of {} does not. False and 0 are values.
        return desired is None or desired in ("", [], (), {})
    if isinstance(desired, (int, str)) and isinstance(live, (int, str)) and _is_quantity(path):
        return _quantity(str(desired)) == _quantity(str(live)) is not None
    return False


def _is_quantity(path: str) -> bool:
    return any(part in _QUANTITY_FIELDS for part in path.split("."))


def _quantity(text: str) -> Decimal | None:
    match = _QUANTITY.match(text)
    return Decimal(match[1]) * _FACTORS[match[2] or ""] if match else None


def _abandoned(desired: Mapping[str, Any], live: Mapping[str, Any], manager: str) -> Iterator[str]:
    """Fields that our last apply owned and that are not desired any more."""
    for entry in live.get("metadata", {}).get("managedFields", ()):
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            yield from _not_desired(entry.get("fieldsV1", {}), desired, "")


def _not_desired(owned: Mapping[str, Any], desired: Any, path: str) -> Iterator[str]:
    for mark, below in owned.items():
        sort, _, name = mark.partition(":")
        if sort == "f":
            if not isinstance(desired, Mapping) or name not in desired:
                yield f"{path}.{name}"
            else:
                yield from _not_desired(below, desired[name], f"{path}.{name}")
        elif sort == "k":
            item = _find_item(json.loads(name), desired)
            if item is None:
                yield f"{path}[{name}]"
            else:
                yield from _not_desired(below, item, f"{path}[{name}]")
        elif sort == "v" and (not isinstance(desired, (list, tuple)) or json.loads(name) not in desired):
            yield f"{path}[{name}]"


def _find_item(keys: Mapping[str, Any], desired: Any) -> Mapping[str, Any] | None:
    """The desired item of those keys; a key that is not given there stands for the server's default."""
    items = desired if isinstance(desired, (list, tuple)) else ()
    for item in items:
        if isinstance(item, Mapping) and all(item.get(key, value) == value for key, value in keys.items()):
            return item
    return None
