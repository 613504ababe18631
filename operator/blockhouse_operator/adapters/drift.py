"""Whether what we own of an object is as we want it: an apply that would change nothing is still a request.

An object is looked at as server-side apply does: every field we give must be there with our value, and no field may
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
"""What tells the items of a list apart, first match; as the list types of the Kubernetes API have it."""

_SERVER_ONLY = frozenset({"apiVersion", "kind"})


def drifted(wanted: Mapping[str, Any], live: Mapping[str, Any], manager: str) -> tuple[str, ...]:
    """Paths of what differs, such as `.spec.replicas`; empty when an apply by `manager` would change nothing."""
    return (*_missing(wanted, live, ""), *_abandoned(wanted, live, manager))


def _missing(wanted: Any, live: Any, path: str) -> Iterator[str]:
    if isinstance(wanted, Mapping) and isinstance(live, Mapping):
        for key, value in wanted.items():
            if path or key not in _SERVER_ONLY:
                yield from _missing(value, live.get(key), f"{path}.{key}")
    elif isinstance(wanted, (list, tuple)) and isinstance(live, list) and wanted:
        yield from _missing_items(wanted, live, path)
    elif not _same(wanted, live, path):
        yield path


def _missing_items(wanted: Sequence[Any], live: Sequence[Any], path: str) -> Iterator[str]:
    key = _item_key(wanted)
    if key is None:
        if len(wanted) != len(live):
            yield path
            return
        for number, (item, found) in enumerate(zip(wanted, live, strict=True)):
            yield from _missing(item, found, f"{path}[{number}]")
        return
    by_key = {found.get(key): found for found in live if isinstance(found, Mapping)}
    for item in wanted:
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


def _same(wanted: Any, live: Any, path: str) -> bool:
    if wanted == live:
        return True
    if live is None:
        return not wanted  # the server stores no empty value: `emptyDir` of {} stays, `labels` of {} does not
    if isinstance(wanted, (int, str)) and isinstance(live, (int, str)) and _is_quantity(path):
        return _quantity(str(wanted)) == _quantity(str(live)) is not None
    return False


def _is_quantity(path: str) -> bool:
    return any(part in _QUANTITY_FIELDS for part in path.split("."))


def _quantity(text: str) -> Decimal | None:
    match = _QUANTITY.match(text)
    return Decimal(match[1]) * _FACTORS[match[2] or ""] if match else None


def _abandoned(wanted: Mapping[str, Any], live: Mapping[str, Any], manager: str) -> Iterator[str]:
    """Fields that our last apply owned and that are not wanted any more."""
    for entry in live.get("metadata", {}).get("managedFields", ()):
        if entry.get("manager") == manager and entry.get("operation") == "Apply" and not entry.get("subresource"):
            yield from _not_wanted(entry.get("fieldsV1", {}), wanted, "")


def _not_wanted(owned: Mapping[str, Any], wanted: Any, path: str) -> Iterator[str]:
    for mark, below in owned.items():
        sort, _, name = mark.partition(":")
        if sort == "f":
            if not isinstance(wanted, Mapping) or name not in wanted:
                yield f"{path}.{name}"
            else:
                yield from _not_wanted(below, wanted[name], f"{path}.{name}")
        elif sort == "k":
            item = _find_item(json.loads(name), wanted)
            if item is None:
                yield f"{path}[{name}]"
            else:
                yield from _not_wanted(below, item, f"{path}[{name}]")
        elif sort == "v" and (not isinstance(wanted, (list, tuple)) or json.loads(name) not in wanted):
            yield f"{path}[{name}]"


def _find_item(keys: Mapping[str, Any], wanted: Any) -> Mapping[str, Any] | None:
    """The wanted item of those keys; a key that is not given there stands for the server's default."""
    items = wanted if isinstance(wanted, (list, tuple)) else ()
    for item in items:
        if isinstance(item, Mapping) and all(item.get(key, value) == value for key, value in keys.items()):
            return item
    return None
