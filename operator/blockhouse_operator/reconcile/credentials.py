"""The Secret that a pipeline makes for itself: token of the admin APIs, passwords of replicas among themselves.

It is created once, rotated when an annotation asks for it, and created again with the same content when it is lost and
this process has seen it; else with what the servers still have. Nothing here is ever logged.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import replace

import structlog

from blockhouse_operator.adapters.kinds import POD, SECRET, Object
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.decide.credentials import rotated
from blockhouse_operator.desired.aggregator import internal_secret
from blockhouse_operator.desired.clickhouse import used_login
from blockhouse_operator.desired.credentials import USERS, Credentials
from blockhouse_operator.reconcile.children import Applied, belongs_to_another
from blockhouse_operator.reconcile.mounted import mounts_users
from blockhouse_operator.reconcile.services import Services

log = structlog.get_logger(__name__)


async def ensure_credentials(services: Services, pipeline: BlockAggregator, applied: Applied) -> Credentials | None:
    """What is in the Secret after this reconcile; None when its name is taken."""
    name, place = names.internal_secret(pipeline.name), f"{pipeline.namespace}/{pipeline.name}"
    found = await services.kubernetes.get(SECRET, pipeline.namespace, name)
    if found is not None and (whose := belongs_to_another(found, pipeline.owners())):
        applied.taken.append(f"Secret {name} {whose}; rename this pipeline, or remove that object")
        return None
    written = present = credentials_in(found) if found is not None else None
    if present is None:
        present = services.remembered.get(place) or await _recovered(services, pipeline)
        log.warning("credentials_created", pipeline=place, secret=name, known=place in services.remembered)
    demand = pipeline.annotations.get(labels.ROTATE_CREDENTIALS, "")
    if present.step or (demand and demand != present.demand):
        fresh = (services.secret(), services.secret())
        own = await _password_is_ours(services, pipeline)
        waited = _waited(services, place, present)
        present = rotated(present, demand, services.wall().timestamp(), fresh, waited=waited, password=own)
    if not present.salt:  # of a version that hashed no Secret
        present = replace(present, salt=services.secret())
    if present != written:
        await services.kubernetes.apply(internal_secret(pipeline, present), found)
    services.remembered[place] = present
    return present


def _waited(services: Services, place: str, present: Credentials) -> float:
    """Seconds for which this process has seen the step of a rotation; a new leader begins to count."""
    now, step = services.clock(), (present.step, present.since)
    known, since = services.rotations.get(place, (step, now))
    services.rotations[place] = (step, since if known == step else now)
    return now - services.rotations[place][1]


def credentials_in(secret: Object) -> Credentials | None:
    """The content of a Secret; None when a part that must be there is missing."""
    data = {key: _decoded(value) for key, value in (secret.get("data") or {}).items()}
    note = _note((secret["metadata"].get("annotations") or {}).get(labels.ROTATION, ""))
    if not data.get("token") or not (data.get("password") or data.get("password-b")):
        return None
    return Credentials(
        token=data["token"],
        passwords=(data.get("password", ""), data.get("password-b", "")),
        former_token=data.get("former-token", ""),
        active=1 if data.get("active") == USERS[1] and data.get("password-b") else 0,
        demand=str(note.get("demand", "")),
        step=str(note.get("step", "")),
        since=float(str(note.get("since", 0))),
        salt=data.get("salt", ""),
    )


async def cluster_logins(contents: Contents, pipeline: str) -> dict[str, str]:
    """Passwords of the users with which replicas query each other, the one in use first; empty while unknown."""
    found = await contents.object(names.internal_secret(pipeline))
    known = credentials_in(found) if found is not None else None
    return known.of_cluster if known is not None else {}


async def secrets_salt(contents: Contents, pipeline: str) -> str:
    """The key of the hashes of Secrets; empty before there is one."""
    found = await contents.object(names.internal_secret(pipeline))
    known = credentials_in(found) if found is not None else None
    return known.salt if known is not None else ""


async def _password_is_ours(services: Services, pipeline: BlockAggregator) -> bool:
    """Whether the password may be rotated: no one gave it, and every pod reads its users from the Secret."""
    managed = pipeline.spec.clickhouse.managed
    if managed is None or managed.cluster_secret_ref is not None:
        return False
    pods = await services.kubernetes.list(POD, pipeline.namespace, labels.of_pipeline(pipeline.name))
    return not any(map(mounts_users, pods))


async def _recovered(services: Services, pipeline: BlockAggregator) -> Credentials:
    """New ones, but with the password that the servers have now, where their Secret is still there."""
    token, password = services.secret(), services.secret()
    name = names.clickhouse_secret(pipeline.name)
    found = await services.kubernetes.get(SECRET, pipeline.namespace, name)
    user, known = used_login(_decoded(((found or {}).get("data") or {}).get("remote_servers.xml", "")))
    if known and user == USERS[1]:
        return Credentials(token, ("", known), active=1)
    return Credentials(token, (known or password, ""))


def _note(text: str) -> Mapping[str, object]:
    try:
        found = json.loads(text)
        float(found.get("since", 0))
    except (ValueError, TypeError, AttributeError):
        return {}
    return found if isinstance(found, dict) else {}


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
