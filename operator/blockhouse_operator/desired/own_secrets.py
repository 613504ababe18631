"""The Secrets with a pipeline's own credentials, apart from each other: who may read one may not read the others.

Pods mount the token of the admin APIs alone: their servers know the one that only reads by it, and ClickHouse has the
passwords from a Secret of files. So none of these can change a pod. Pods made before the passwords were in files have
one in their environment, from the Secret of the token: it stays there as well until they are gone.
"""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Mapping

from blockhouse_operator.api import labels, names
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.desired.credentials import USERS, Credentials
from blockhouse_operator.desired.manifest import Manifest, manifest

PASSWORDS = ("password", "password-b")
"""Keys of the passwords of USERS."""
MOVED = "passwords"
"""Key in the Secret of the admin token: the name of the Secret that has the passwords. Earlier operators had them
beside the token, and leave this key out."""


def own_secrets(pipeline: BlockAggregator, credentials: Credentials, *, both: bool) -> tuple[Manifest, ...]:
    """The manifests in the order in which they are applied: passwords are kept before a step counts on them, or before
    they go from where earlier operators had them; there they stay as well if `both`. The values are given by the
    caller, from a source of true randomness."""
    return (
        password_secret(pipeline, credentials),
        internal_secret(pipeline, credentials, both=both),
        read_secret(pipeline, credentials),
    )


def password_secret(pipeline: BlockAggregator, credentials: Credentials) -> Manifest:
    """The passwords between replicas."""
    return _secret(pipeline, names.password_secret(pipeline.name), _passwords(credentials))


def internal_secret(pipeline: BlockAggregator, credentials: Credentials, *, both: bool) -> Manifest:
    """The token of the admin APIs, and how far a rotation is: in one write with which password is in use; `both` as in
    `own_secrets`."""
    values = {
        **(_passwords(credentials) if both else {}),
        "token": credentials.token,
        "former-token": credentials.former_token,
        "active": USERS[1] if credentials.active else "",
        "salt": credentials.salt,
        MOVED: names.password_secret(pipeline.name),
    }
    found = _secret(pipeline, names.internal_secret(pipeline.name), values)
    if credentials.demand or credentials.step:
        note = {"demand": credentials.demand, "step": credentials.step, "since": credentials.since}
        found["metadata"]["annotations"] = {labels.ROTATION: json.dumps(note, sort_keys=True)}
    return found


def read_secret(pipeline: BlockAggregator, credentials: Credentials) -> Manifest:
    """The token that only reads."""
    values = dict(zip(("token", "other-token"), credentials.reading, strict=False))
    return _secret(pipeline, names.read_secret(pipeline.name), values)


def _passwords(credentials: Credentials) -> dict[str, str]:
    return dict(zip(PASSWORDS, credentials.passwords, strict=True))


def _secret(pipeline: BlockAggregator, name: str, values: Mapping[str, str]) -> Manifest:
    return manifest(
        "Secret",
        name,
        pipeline.namespace,
        labels=labels.of_pipeline(pipeline.name),
        owner=pipeline.reference(),
        type="Opaque",
        data={key: b64encode(value.encode()).decode() for key, value in values.items() if value},
    )
