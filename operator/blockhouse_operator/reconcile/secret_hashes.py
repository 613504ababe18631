"""What pods have read of Secrets, as hashes: by these the operator restarts them where that is asked for."""

from __future__ import annotations

from collections.abc import Sequence

from blockhouse_operator.adapters.packed import PackedObjects
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import names
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.api.status import SecretHash
from blockhouse_operator.decide.secret_contents import content_hashes, restart_hash, restarting_references
from blockhouse_operator.reconcile.credentials import secrets_salt
from blockhouse_operator.reconcile.parts_login import in_use
from blockhouse_operator.reconcile.shard_ingests import given_spec


async def secret_hashes(
    pipeline: BlockAggregator, contents: Contents, missing: Sequence[str], shards: PackedObjects
) -> tuple[tuple[SecretHash, ...], str]:
    """Of what pods read, which was read before, and what shards are given for it. While something is missing, for no
    restarted pod could start, and before the pipeline has the key of such hashes, all stays as it was.

    The password with which replicas fetch parts counts once they use it: a pod that restarts before would not."""
    former, last = given_spec(shards), pipeline.status.secrets
    given = former.secrets_hash if former is not None else ""
    salt = await secrets_salt(contents, pipeline.name)
    if missing or not salt:
        return last, given
    found = contents.found(restarting_references(pipeline.spec)) | await in_use(pipeline, contents)
    hashes = content_hashes(names.internal_secret(pipeline.name), found, salt)
    return hashes, restart_hash(pipeline.spec, last, hashes, given)
