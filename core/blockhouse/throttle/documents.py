"""What is kept durably, as JSON: the same document in the file of a command and in the operator's ConfigMap.

{"version": 1, "cluster": "...", "rates": [{"broker", "role", "values"}], "lists": [{"topic", "role", "entries"}],
 "overrides": {"everywhere": {"rate", "autoRemove", "expiresAt"}, "brokers": {"3": {...}}}}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from blockhouse.errors import Permanent
from blockhouse.throttle.model import Override, Overrides, Ownership, Role

VERSION = 1


@dataclass(frozen=True, slots=True)
class Record:
    """What is ours in one Kafka cluster, and the overrides that people asked for there."""

    cluster: str
    ownership: Ownership = field(default_factory=Ownership)
    overrides: Overrides = field(default_factory=Overrides)


def render(record: Record) -> str:
    """The document; the same text for the same record."""
    content = {
        "version": VERSION,
        "cluster": record.cluster,
        "rates": [
            {"broker": broker, "role": role.value, "values": list(values)}
            for (broker, role), values in sorted(record.ownership.rates.items())
        ],
        "lists": [
            {"topic": topic, "role": role.value, "entries": sorted(entries)}
            for (topic, role), entries in sorted(record.ownership.lists.items())
        ],
        "overrides": {
            "everywhere": _override_document(record.overrides.everywhere),
            "brokers": {str(id): _override_document(found) for id, found in sorted(record.overrides.brokers.items())},
        },
    }
    return json.dumps(content, indent=1)


def parse(text: str, where: str) -> Record:
    """The record of a document. Raises Permanent naming `where` it stands: a lost record would leave throttles."""
    try:
        content = json.loads(text)
        if content["version"] != VERSION:
            raise ValueError(f"version {content['version']} is not known")
        overrides = content["overrides"]
        return Record(
            cluster=str(content["cluster"]),
            ownership=Ownership(
                {(int(r["broker"]), Role(r["role"])): tuple(map(int, r["values"])) for r in content["rates"]},
                {(str(r["topic"]), Role(r["role"])): frozenset(map(str, r["entries"])) for r in content["lists"]},
            ),
            overrides=Overrides(
                _override(overrides["everywhere"]),
                {int(id): found for id, given in overrides["brokers"].items() if (found := _override(given))},
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise Permanent(
            f"{where} is not a record of throttles ({error}); move it aside, and take over what is set in the cluster "
            "with 'blockhouse topics throttle clear --all --adopt'",
            reason="UnreadableRecord",
        ) from error


def _override_document(override: Override | None) -> Mapping[str, Any] | None:
    if override is None:
        return None
    return {"rate": override.rate, "autoRemove": override.auto_remove, "expiresAt": override.expires_at}


def _override(content: Mapping[str, Any] | None) -> Override | None:
    if content is None:
        return None
    expires = content["expiresAt"]
    return Override(int(content["rate"]), bool(content["autoRemove"]), None if expires is None else float(expires))
