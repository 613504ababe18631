"""One reconcile of a BlockAggregator: make its shards and its verifier, remove shards that may go, report."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.kinds import (
    BLOCK_AGGREGATOR,
    CONFIG_MAP,
    DEPLOYMENT,
    SERVICE,
    SERVICE_ACCOUNT,
    SHARD_INGEST,
    VOLUME_CLAIM,
    Object,
)
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.conditions import Condition, ConditionType, Reason, condition
from blockhouse_operator.api.references import PasswordSecretRef
from blockhouse_operator.api.resource import (
    BlockAggregator,
    InvalidSpec,
    Problem,
    parse_block_aggregator,
    parse_shard_ingest,
)
from blockhouse_operator.api.status import BlockAggregatorStatus, VerifierStatus
from blockhouse_operator.decide.claims import Claimant, conflict
from blockhouse_operator.decide.pipeline import PipelineSeen, describe_pipeline
from blockhouse_operator.decide.references import Reference, references, references_of_pods
from blockhouse_operator.decide.shard import drained
from blockhouse_operator.decide.streams import expected_streams
from blockhouse_operator.desired.aggregator import children, oversize
from blockhouse_operator.reconcile.children import (
    Applied,
    Children,
    apply_children,
    list_children,
    prune_children,
    raise_refused,
)
from blockhouse_operator.reconcile.credentials import ensure_credentials
from blockhouse_operator.reconcile.observe import look_at_shard
from blockhouse_operator.reconcile.report import report, with_times
from blockhouse_operator.reconcile.scope import Scope
from blockhouse_operator.reconcile.services import Services, proven
from blockhouse_operator.reconcile.shard_ingests import ShardIngests
from blockhouse_operator.reconcile.snapshot import KINDS, list_pods, snapshot_of
from blockhouse_operator.reconcile.users import publish_users

log = structlog.get_logger(__name__)

SOON = 10.0
VERIFIER_KINDS = (DEPLOYMENT, SERVICE, CONFIG_MAP, SERVICE_ACCOUNT)


@dataclass(frozen=True)
class _Removal:
    """Surplus shards that are there still, and what the one of the highest number waits for."""

    left: tuple[int, ...] = ()
    draining: str = ""


class PipelineReconciler:
    """Reconciles every pipeline."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope
        self._shards = ShardIngests()
        self._reported: set[tuple[str, str]] = set()

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Returns after how many seconds it wants the next reconcile; None when it is gone or going: its children go by
        their owner references, invalid or not."""
        return await proven(self._services, lambda services: self._reconcile_by(services, namespace, name))

    async def _reconcile_by(self, services: Services, namespace: str, name: str) -> float | None:
        live = await services.kubernetes.get(BLOCK_AGGREGATOR, namespace, name)
        if live is None or live["metadata"].get("deletionTimestamp"):
            return None
        try:
            pipeline = _usable(live)
        except InvalidSpec as error:
            await self._refuse(services, live, error)
            return services.resync
        zones = [zone.name for zone in pipeline.spec.zones]
        if other := await self._scope.other(namespace, zones):
            await self._leave(services, live, other)
            return services.resync
        disputed = await self._conflict(services, pipeline, live)
        if disputed:
            await self._write_status(services, pipeline, live, PipelineSeen(shards=(), conflict=disputed))
            return services.resync
        return await self._reconcile(services, pipeline, live)

    async def _leave(self, services: Services, live: Object, other: str) -> None:
        """Another release serves it: report it once by an Event, and write nothing else."""
        place = (live["metadata"]["uid"], other)
        if place not in self._reported:
            self._reported.add(place)
            now = services.now()
            await services.kubernetes.emit(live, warning=True, reason="OtherOperator", message=other, at=now)

    async def _reconcile(self, services: Services, pipeline: BlockAggregator, live: Object) -> float:
        contents = Contents(services.kubernetes, pipeline.namespace, services.folder)
        missing = await contents.read(references_of_pods(pipeline.spec))
        missing += await contents.read(references(_cluster_login(pipeline)))
        applied = Applied()
        credentials = await ensure_credentials(services, pipeline, applied)
        unpublished = await publish_users(services, pipeline, contents, credentials, applied)
        shards = await list_children(
            services.kubernetes, [SHARD_INGEST], pipeline.namespace, labels.of_pipeline(pipeline.name)
        )
        due = self._shards.due(pipeline, shards)
        manifests = children(pipeline, services.zones, due)
        applied.add(await apply_children(services.kubernetes, manifests, shards, pipeline.owners()))
        await self._shards.restore(services, pipeline, due, shards, applied)
        removal = await self._remove_surplus(services, pipeline, shards)
        await self._prune(services, pipeline, manifests)
        verifier, silence = await self._verdict(services, pipeline, contents)
        seen = PipelineSeen(
            shards=tuple(self._shards.states(pipeline, shards, applied)),
            surplus=removal.left,
            draining=removal.draining,
            verifier=verifier,
            verifier_silence=silence,
            verifier_elsewhere=services.zones is not None and pipeline.spec.zones[0].name not in services.zones,
            missing_references=tuple(dict.fromkeys(missing)),
            unpublished=unpublished,
            taken=tuple(applied.taken),
            refused=tuple(applied.refused),
        )
        after = await self._write_status(services, pipeline, live, seen)
        raise_refused(pipeline.name, applied)
        settled = credentials is None or not credentials.step
        return services.resync if settled and _calm(after) and not applied.ending else SOON

    async def _conflict(self, services: Services, pipeline: BlockAggregator, live: Object) -> str | None:
        others = []
        for other in await services.kubernetes.list(BLOCK_AGGREGATOR, services.namespace):
            try:
                parsed = parse_block_aggregator(other)
            except InvalidSpec:
                continue  # it loads nothing, so it claims nothing
            others.append(Claimant(parsed, other["metadata"].get("creationTimestamp", "")))
        return conflict(Claimant(pipeline, live["metadata"].get("creationTimestamp", "")), others)

    async def _remove_surplus(self, services: Services, pipeline: BlockAggregator, shards: Children) -> _Removal:
        """Remove the surplus shard of the highest number, if the spec allows it and every message of it is stored."""
        surplus = {}
        for found in shards.values():
            number = int(found["metadata"]["labels"].get(labels.SHARD, "-1"))
            if number >= pipeline.spec.shards:
                surplus[number] = found
        left = tuple(sorted(surplus))
        if pipeline.spec.shard_removal_policy == "Drain":
            await self._delete_volumes(services, pipeline, shards)
        if not left or pipeline.spec.shard_removal_policy != "Drain":
            return _Removal(left, "spec.shardRemovalPolicy forbids it" if left else "")
        last = surplus[max(left)]
        if last["metadata"].get("deletionTimestamp"):
            return _Removal(left, "it is ending")
        waits = await self._waits_for(last)
        if waits:
            return _Removal(left, waits)
        await services.kubernetes.delete(last, why="not in the spec any more, and every message is stored")
        return _Removal(left, "it is ending")

    async def _delete_volumes(self, services: Services, pipeline: BlockAggregator, shards: Children) -> None:
        """Volumes of shards that were removed: they belong to the pipeline, which has the policy to delete them."""
        managed = pipeline.spec.clickhouse.managed
        if managed is None or managed.storage.deletion_policy != "Delete":
            return
        there = {found["metadata"]["labels"].get(labels.SHARD) for found in shards.values()}
        own = labels.of_pipeline(pipeline.name)
        for claim in await services.kubernetes.list(VOLUME_CLAIM, pipeline.namespace, own):
            meta = claim["metadata"]
            shard = meta["labels"].get(labels.SHARD, "")
            mine = any(owner["uid"] == pipeline.uid for owner in meta.get("ownerReferences", ()))
            gone = shard.isdigit() and int(shard) >= pipeline.spec.shards and shard not in there
            if mine and gone and not meta.get("deletionTimestamp"):
                await services.kubernetes.delete(claim, why=f"shard {shard} was removed")

    async def _waits_for(self, live: Object) -> str:
        """What a shard still has to store before it may be removed, as of now; empty when there is nothing."""
        try:
            shard = parse_shard_ingest(live)
        except InvalidSpec as error:
            return f"its resource is invalid, so it is unknown whether it is drained: {error}"
        services = self._services
        contents = Contents(services.kubernetes, shard.namespace, services.folder)
        await contents.read([Reference("Secret", names.internal_secret(shard.spec.pipeline), "token")])
        of_shard = labels.of_shard(shard.spec.pipeline, shard.spec.shard)
        found = await list_children(services.kubernetes, KINDS, shard.namespace, of_shard)
        snapshot = snapshot_of(services, shard, live, found, await list_pods(services, shard), Applied())
        if drained(expected_streams(shard.spec), await look_at_shard(services, shard, snapshot, contents, (), {})):
            return ""
        return "messages of its topics are not stored yet; stop producing to it"

    async def _prune(self, services: Services, pipeline: BlockAggregator, manifests: Sequence[Object]) -> None:
        """Take away the verifier where it was switched off."""
        own = labels.of_pipeline(pipeline.name, names.VERIFIER)
        if pipeline.spec.verifier.enabled and any(m["kind"] == "Deployment" for m in manifests):
            return
        found = await list_children(services.kubernetes, VERIFIER_KINDS, pipeline.namespace, own)
        await prune_children(services.kubernetes, manifests, found, pipeline.uid)

    async def _verdict(
        self, services: Services, pipeline: BlockAggregator, contents: Contents
    ) -> tuple[VerifierStatus | None, str]:
        zones = services.zones
        if not pipeline.spec.verifier.enabled or (zones is not None and pipeline.spec.zones[0].name not in zones):
            return None, ""
        secret = names.internal_secret(pipeline.name)
        await contents.read([Reference("Secret", secret, "token")])
        base = services.endpoints.verifier(pipeline.name, pipeline.namespace)
        try:
            return await services.http.verdict(base, contents.admin_token(pipeline.name)), ""
        except Retryable as error:
            return None, str(error)

    async def _write_status(
        self, services: Services, pipeline: BlockAggregator, live: Object, seen: PipelineSeen
    ) -> tuple[Condition, ...]:
        status, conditions = describe_pipeline(pipeline.spec, seen)
        timed = with_times(services, pipeline.status.conditions, conditions, pipeline.generation)
        whole = status.model_copy(update={"conditions": timed, "observed_generation": pipeline.generation})
        await report(services, BLOCK_AGGREGATOR, live, pipeline.status.conditions, whole, timed)
        return timed

    async def _refuse(self, services: Services, live: Object, error: InvalidSpec) -> None:
        """Report what is wrong; the children stay as they are."""
        generation = live["metadata"].get("generation", 0)
        try:
            before = BlockAggregatorStatus.model_validate(live.get("status") or {})
        except ValueError:
            before = BlockAggregatorStatus()
        conditions = [
            condition(ConditionType.READY, False, Reason.INVALID_SPEC, str(error)),
            condition(ConditionType.STALLED, True, Reason.INVALID_SPEC, str(error)),
        ]
        timed = with_times(services, before.conditions, conditions, generation)
        status = before.model_copy(update={"conditions": timed, "observed_generation": generation})
        await report(services, BLOCK_AGGREGATOR, live, before.conditions, status, timed)


def _usable(live: Object) -> BlockAggregator:
    """Raises InvalidSpec: also where what the spec asks for does not fit into Kubernetes' objects."""
    pipeline = parse_block_aggregator(live)
    if why := oversize(pipeline):
        raise InvalidSpec(f"BlockAggregator {pipeline.name}", [Problem("spec.clickhouse.remoteServers", why)])
    return pipeline


def _cluster_login(pipeline: BlockAggregator) -> PasswordSecretRef | None:
    managed = pipeline.spec.clickhouse.managed
    return managed.cluster_secret_ref if managed is not None else None


def _calm(conditions: Sequence[Condition]) -> bool:
    by_type = {found.type: found for found in conditions}
    ready = by_type.get(ConditionType.READY.value)
    settled = ready is not None and (ready.status == "True" or ready.reason == Reason.SUSPENDED.value)
    return settled and ConditionType.RECONCILING.value not in by_type
