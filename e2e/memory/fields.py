"""Server-side apply in memory: which fields a manifest has, and an object with those fields. Pure."""

from __future__ import annotations

import copy
import json
from typing import Any

_KEYS = ("name", "mountPath", "containerPort", "port", "uid", "type")


def merged(live: dict[str, Any], given: dict[str, Any]) -> dict[str, Any]:
    """The object after the apply: fields given replace those that are there, null removes one; lists are replaced."""
    result = copy.deepcopy(live)
    for key, value in given.items():
        if value is None:
            result.pop(key, None)
        elif isinstance(value, dict) and isinstance(result.get(key), dict):
            result[key] = merged(result[key], value)
        else:
            result[key] = copy.deepcopy(value)
    return result


def fields_of(given: Any) -> dict[str, Any]:
    """As `managedFields` has it."""
    if not isinstance(given, dict):
        return {}
    return {
        f"f:{key}": _of_list(value) if isinstance(value, list) else fields_of(value)
        for key, value in given.items()
        if key not in ("apiVersion", "kind")
    }


def _of_list(items: list[Any]) -> dict[str, Any]:
    key = next((key for key in _KEYS if items and all(isinstance(i, dict) and key in i for i in items)), None)
    if key is None or len({item[key] for item in items}) < len(items):
        return {}
    return {f"k:{json.dumps({key: item[key]})}": fields_of(item) for item in items}
