"""The Secrets that a pipeline makes for itself: the token of the admin APIs, the one that only reads, and the passwords
of replicas among themselves.

They are created once, rotated when an annotation asks for it, and created again with the same content when one is lost
and this process has seen it; else with what is left and what the servers still have. Nothing here is ever logged.
"""

from __future__ import annotations

import base64
import binascii
import json
from collections.abc import Mapping
from dataclasses import replace

import structlog

from blockhouse_operator.adapters.kinds import POD, SECRET, STATEFUL_SET, Object
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.decide.credentials import rotated
from blockhouse_operator.desired.clickhouse import used_login
from blockhouse_operator.desired.credentials import USERS, Credentials
from blockhouse_operator.desired.own_secrets import MOVED, PASSWORDS, own_secrets
from blockhouse_operator.reconcile.children import Applied, belongs_to_another
from blockhouse_operator.reconcile.mounted import mounts_users, reads_variable
from blockhouse_operator.reconcile.services import Services

log = structlog.get_logger(__name__)


async def ensure_credentials(services: Services, pipeline: BlockAggregator, applied: Applied) -> Credentials | None:
    """What is in the Secrets after this reconcile; None when the name of one is taken."""
    place, own = f"{pipeline.namespace}/{pipeline.name}", names.own_secrets(pipeline.name)
    live = {name: await services.kubernetes.get(SECRET, pipeline.namespace, name) for name in own}
    for name, secret in live.items():
        if secret is not None and (whose := belongs_to_another(secret, pipeline.owners())):
            applied.taken.append(f"Secret {name} {whose}; rename this pipeline, or remove that object")
    if applied.taken:
        return None
    found = _credentials_in(
        internal=live[names.internal_secret(pipeline.name)], passwords=live[names.password_secret(pipeline.name)]
    )
    present = found
    if not _complete(found):
        present = services.remembered.get(place) or await _recovered(services, pipeline, found)
        log.warning("credentials_created", pipeline=place, known=place in services.remembered)
    demand = pipeline.annotations.get(labels.ROTATE_CREDENTIALS, "")
    if present.step or (demand and demand != present.demand):
        fresh = (services.secret(), services.secret())
        ours = await _password_is_ours(services, pipeline)
        waited = services.waited(place, (present.step, present.since))
        present = rotated(present, demand, services.wall().timestamp(), fresh, waited=waited, password=ours)
    if not present.salt:  # of a version that hashed no Secret
        present = replace(present, salt=services.secret())
    both = await _read_beside_the_token(services, pipeline, live[names.internal_secret(pipeline.name)])
    for manifest in own_secrets(pipeline, present, both=both):
        await services.kubernetes.apply(manifest, live[manifest["metadata"]["name"]])
    services.remembered[place] = present
    return present


def _credentials_in(*, internal: Object | None, passwords: Object | None) -> Credentials:
    """The content of the Secrets, with an empty text for what is missing. Passwords beside the token count where an
    operator before this version wrote that Secret last: they are then the newest there are."""
    data, kept = _data(internal), _data(passwords)
    if MOVED not in data and any(data.get(key) for key in PASSWORDS):
        kept = data
    note = _note((((internal or {}).get("metadata") or {}).get("annotations") or {}).get(labels.ROTATION, ""))
    first, second = (kept.get(key, "") for key in PASSWORDS)
    return Credentials(
        token=data.get("token", ""),
        passwords=(first, second),
        former_token=data.get("former-token", ""),
        active=1 if second and (data.get("active") == USERS[1] or not first) else 0,
        demand=str(note.get("demand", "")),
        step=str(note.get("step", "")),
        since=float(str(note.get("since", 0))),
        salt=data.get("salt", ""),
    )


def _complete(found: Credentials) -> bool:
    return bool(found.token and any(found.passwords))


async def cluster_logins(contents: Contents, pipeline: str) -> dict[str, str]:
    """Passwords of the users with which replicas query each other, the one in use first; empty while unknown."""
    internal = await contents.object(names.internal_secret(pipeline))
    passwords = await contents.object(names.password_secret(pipeline))
    return _credentials_in(internal=internal, passwords=passwords).of_cluster if internal is not None else {}


async def secrets_salt(contents: Contents, pipeline: str) -> str:
    """The key of the hashes of Secrets; empty before there is one."""
    return _data(await contents.object(names.internal_secret(pipeline))).get("salt", "")


async def _password_is_ours(services: Services, pipeline: BlockAggregator) -> bool:
    """Whether the password may be rotated: no one gave it, and every pod reads its users from the Secret."""
    managed = pipeline.spec.clickhouse.managed
    if managed is None or managed.cluster_secret_ref is not None:
        return False
    pods = await services.kubernetes.list(POD, pipeline.namespace, labels.of_pipeline(pipeline.name))
    return not any(map(mounts_users, pods))


async def _read_beside_the_token(services: Services, pipeline: BlockAggregator, internal: Object | None) -> bool:
    """Whether a pod made before the passwords were apart has one in its environment, without which its container would
    not start again. Not asked once they have gone from there."""
    if internal is not None and not any(_data(internal).get(key) for key in PASSWORDS):
        return False
    secret, own = names.internal_secret(pipeline.name), labels.of_pipeline(pipeline.name)
    for kind in (POD, STATEFUL_SET):
        found = await services.kubernetes.list(kind, pipeline.namespace, own)
        if any(reads_variable(each, secret) for each in found):
            return True
    return False


async def _recovered(services: Services, pipeline: BlockAggregator, found: Credentials) -> Credentials:
    """What is left of them, with the password that the servers have now, where their Secret is still there; the rest is
    new."""
    files = await services.kubernetes.get(SECRET, pipeline.namespace, names.clickhouse_secret(pipeline.name))
    user, password = used_login(_data(files).get("remote_servers.xml", ""))
    if not password:
        user, password = next(iter(found.of_cluster.items()), (USERS[0], services.secret()))
    active = 1 if user == USERS[1] else 0
    passwords = ("", password) if active else (password, "")
    return replace(found, token=found.token or services.secret(), passwords=passwords, active=active)


def _data(secret: Object | None) -> dict[str, str]:
    return {key: _decoded(value) for key, value in ((secret or {}).get("data") or {}).items()}


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
