"""Publish the configuration files that users add to a managed ClickHouse: the Secret of which pods mount single keys.

A key is never removed while a pod mounts it, or a StatefulSet could create one that does: it could not start again.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace

from blockhouse_operator.adapters.kinds import POD, SECRET, STATEFUL_SET, Object
from blockhouse_operator.adapters.packed import PackedObjects
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.clickhouse import ClickHouseSpec
from blockhouse_operator.api.clickhouse_files import ConfigFile
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.decide.clickhouse_files import FilesPlan, GivenFile, PublishedFiles, plan_files
from blockhouse_operator.decide.pipeline import ShardState
from blockhouse_operator.decide.references import references
from blockhouse_operator.desired.aggregator import LARGEST_SECRET
from blockhouse_operator.desired.clickhouse_files import (
    CONFIG,
    SALT,
    files_secret,
    mounted_keys,
    total_size,
    usable_config,
    usable_users,
)
from blockhouse_operator.reconcile.children import Applied, apply_children
from blockhouse_operator.reconcile.services import Services
from blockhouse_operator.reconcile.shard_ingests import given_spec

NO_ROOM = "pods mount files of before still, and the Secret has no room for this one beside them"


@dataclass(frozen=True)
class Files:
    """What is to be published, and the Secret as it is."""

    plan: FilesPlan = field(default_factory=FilesPlan)
    salt: str = ""
    live: Object | None = None

    @property
    def former(self) -> dict[str, str]:
        """Keys of the Secret that no shard is given any more, with their contents as Kubernetes encodes them."""
        found = (self.live or {}).get("data") or {}
        return {key: value for key, value in found.items() if key.startswith(CONFIG) and key not in self.plan.data}


async def read_files(services: Services, pipeline: BlockAggregator, contents: Contents, shards: PackedObjects) -> Files:
    """What the spec and its sources ask for. Writes nothing."""
    managed = pipeline.spec.clickhouse.managed
    if managed is None:
        return Files()
    live = await services.kubernetes.get(SECRET, pipeline.namespace, names.clickhouse_files(pipeline.name))
    if live is None and not managed.config_files and not managed.user_files:
        return Files()
    data = {key: _decoded(value) for key, value in ((live or {}).get("data") or {}).items()}
    slots = ((live or {}).get("metadata", {}).get("annotations") or {}).get(labels.FILES, "").split()
    users = {name: data.get(f"user-{number:02}.xml", "") for number, name in enumerate(slots)}
    spec, salt = pipeline.spec.clickhouse, data.get(SALT) or services.secret()
    config = [await _given(file, contents, spec, usable_config) for file in managed.config_files]
    given = [await _given(file, contents, spec, usable_users) for file in managed.user_files]
    former = given_spec(shards)  # the first shard speaks for all
    before = PublishedFiles(former.config_files if former is not None else None, users)
    files = Files(plan_files(config, given, before, salt), salt, live)
    if total_size(files.plan.data.values()) + total_size(files.former.values()) > LARGEST_SECRET:
        config = [replace(file, problem=NO_ROOM) for file in config]
        files = Files(plan_files(config, given, before, salt), salt, live)
    return files


async def publish_files(services: Services, pipeline: BlockAggregator, files: Files, applied: Applied) -> None:
    """Write the Secret, with what pods may mount still."""
    if files.salt:
        await _write(services, pipeline, files, files.former, applied)


async def prune_files(
    services: Services, pipeline: BlockAggregator, files: Files, shards: Iterable[ShardState], applied: Applied
) -> None:
    """Take out of the Secret what no pod mounts any more, once every shard has the files of now."""
    settled = all(shard.current and shard.status.updated_replicas == len(shard.status.replicas) for shard in shards)
    if not files.former or not settled:
        return
    services.must_be_fresh()
    own, secret = labels.of_pipeline(pipeline.name), names.clickhouse_files(pipeline.name)
    pods = await services.kubernetes.list(POD, pipeline.namespace, own)
    sets = await services.kubernetes.list(STATEFUL_SET, pipeline.namespace, own)
    templates = [found["spec"].get("template") or {} for found in sets]
    mounted = {key for pod in (*pods, *templates) for key in mounted_keys(pod, secret)}
    mounted |= {file.key for file in files.plan.config}
    kept = {key: value for key, value in files.former.items() if key in mounted}
    if kept != files.former:
        await _write(services, pipeline, files, kept, applied)


async def _write(
    services: Services, pipeline: BlockAggregator, files: Files, kept: Mapping[str, str], applied: Applied
) -> None:
    manifest = files_secret(pipeline, {SALT: files.salt, **files.plan.data}, files.plan.users, kept)
    name = manifest["metadata"]["name"]
    live = await services.kubernetes.get(SECRET, pipeline.namespace, name)
    found = {(SECRET.name, name): live} if live is not None else {}
    applied.add(await apply_children(services.kubernetes, [manifest], found, pipeline.owners()))


async def _given(
    file: ConfigFile, contents: Contents, spec: ClickHouseSpec, usable: Callable[[str, ClickHouseSpec], str]
) -> GivenFile:
    text = file.text
    if source := file.config_map_key_ref:
        problems = await contents.read(references(source))
        text = contents.text(source.name, source.key, "ConfigMap")
    elif secret := file.secret_key_ref:
        problems = await contents.read(references(secret))
        text = contents.text(secret.name, secret.key)
    else:
        problems = ()
    if text is None:
        return GivenFile(file.name, problem=problems[0] if problems else "its source is no text", missing=True)
    try:
        return GivenFile(file.name, usable(text, spec))
    except ValueError as error:
        return GivenFile(file.name, problem=str(error))


def _decoded(value: str) -> str:
    try:
        return base64.b64decode(value).decode()
    except (binascii.Error, UnicodeDecodeError):
        return ""
