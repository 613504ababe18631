"""What no manifest describes and pods still read: files of a shard's ConfigMap, keys of a Secret. They stay while they
are needed.

A pod that is restarted could not start without them. A file of users is never given a user here: the environment of the
pods that read it has no password for one, and ClickHouse takes a missing variable for an empty password.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from blockhouse_operator.adapters.kinds import CONFIG_MAP, Object
from blockhouse_operator.api.resource import ClickHouseShardIngest
from blockhouse_operator.desired.clickhouse import without_users
from blockhouse_operator.reconcile.children import Children

USERS = "users.xml"


def with_mounted_files(
    shard: ClickHouseShardIngest,
    leaving: Collection[str],
    pods: Mapping[str, Object],
    manifests: Sequence[Object],
    live: Children,
) -> list[Object]:
    """The manifests, in which the shard's ConfigMap keeps the files of replicas that are to leave, and the users of
    pods made before these were in a Secret."""
    files = {f"{name}.yaml" for name in leaving}
    if any(mounts_users(pod) for pod in pods.values()):
        files.add(USERS)
    found: list[Object] = []
    for manifest in manifests:
        known = live.get((manifest["kind"], manifest["metadata"]["name"]))
        if manifest["kind"] == CONFIG_MAP.name and known is not None:
            kept = {key: text for key, text in (known.get("data") or {}).items() if key in files}
            if USERS in kept:
                kept[USERS] = _without_removed(shard, kept[USERS])
            found.append({**manifest, "data": {**kept, **manifest["data"]}})
        else:
            found.append(manifest)
    return found


def mounts_users(pod: Object) -> bool:
    """Whether a pod reads its users from a ConfigMap."""
    for volume in (pod.get("spec") or {}).get("volumes") or ():
        for source in (volume.get("projected") or {}).get("sources") or ():
            if any(item.get("key") == USERS for item in (source.get("configMap") or {}).get("items") or ()):
                return True
    return False


def reads_variable(found: Object, secret: str) -> bool:
    """Whether a pod, or one that a StatefulSet would make, has anything of the Secret in its environment."""
    spec = found.get("spec") or {}
    spec = (spec.get("template") or {}).get("spec") or spec
    for container in spec.get("containers") or ():
        for variable in container.get("env") or ():
            if ((variable.get("valueFrom") or {}).get("secretKeyRef") or {}).get("name") == secret:
                return True
    return False


def _without_removed(shard: ClickHouseShardIngest, text: str) -> str:
    managed = shard.spec.clickhouse.managed
    try:
        return without_users(text, [user.name for user in managed.users] if managed else [])
    except SyntaxError:  # what ElementTree raises: it was changed by hand
        return text
