"""One reconcile of a BlockAggregator: make its shards and its verifier, remove shards that may go, report."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.kinds import (
    BLOCK_AGGREGATOR,
    CONFIG_MAP,
    DEPLOYMENT,
    SERVICE,
    SERVICE_ACCOUNT,
    SHARD_INGEST,
    Object,
)
from blockhouse_operator.adapters.packed import PackedObjects
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.conditions import ConditionType, Reason, condition
from blockhouse_operator.api.references import PasswordSecretRef
from blockhouse_operator.api.resource import (
    BlockAggregator,
    InvalidSpec,
    Problem,
    parse_block_aggregator,
)
from blockhouse_operator.api.status import BlockAggregatorStatus, VerifierStatus
from blockhouse_operator.decide.claims import Claimant, claims_of, conflict
from blockhouse_operator.decide.pipeline import PipelineSeen, describe_pipeline
from blockhouse_operator.decide.references import Reference, references, references_of_pods
from blockhouse_operator.decide.replication_port import open_replication_port
from blockhouse_operator.decide.shard_conditions import PAUSED
from blockhouse_operator.decide.transitions import calm
from blockhouse_operator.desired.aggregator import children, oversize
from blockhouse_operator.reconcile.backoff import Backoff
from blockhouse_operator.reconcile.children import (
    Applied,
    apply_children,
    list_children,
    prune_children,
    raise_refused,
)
from blockhouse_operator.reconcile.clickhouse_files import prune_files, publish_files, read_files
from blockhouse_operator.reconcile.credentials import ensure_credentials
from blockhouse_operator.reconcile.parts_login import PartsLoginStep
from blockhouse_operator.reconcile.report import report, with_times
from blockhouse_operator.reconcile.scope import Scope
from blockhouse_operator.reconcile.secret_hashes import secret_hashes
from blockhouse_operator.reconcile.services import Services, proven
from blockhouse_operator.reconcile.shard_ingests import ShardIngests
from blockhouse_operator.reconcile.surplus import remove_surplus, surplus_shards
from blockhouse_operator.reconcile.undisputed import Undisputed, accepted_before
from blockhouse_operator.reconcile.users import publish_users

SOON = 10.0
"""Seconds after which a pipeline that is not as it should be is reconciled again, at first."""
VERIFIER_KINDS = (DEPLOYMENT, SERVICE, CONFIG_MAP, SERVICE_ACCOUNT)


class PipelineReconciler:
    """Reconciles every pipeline."""

    def __init__(self, services: Services, scope: Scope, wake: Callable[[str, str], None]) -> None:
        """`wake` lets all shards of a pipeline be reconciled soon, by its namespace and name."""
        self._services = services
        self._scope = scope
        self._wake = wake
        self._shards = ShardIngests()
        self._reported: set[tuple[str, str]] = set()
        self._undisputed = Undisputed()
        self._backoff = Backoff()

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Returns after how many seconds it wants the next reconcile; None when it is gone or going: its children go by
        their owner references, invalid or not."""
        return await proven(self._services, lambda services: self._reconcile_by(services, namespace, name))

    async def _reconcile_by(self, services: Services, namespace: str, name: str) -> float | None:
        live = await services.kubernetes.get(BLOCK_AGGREGATOR, namespace, name)
        if live is None or live["metadata"].get("deletionTimestamp"):
            services.pauses.forget(namespace, name)
            services.leaving.pop(f"{namespace}/{name}", None)
            self._backoff.forget((namespace, name))
            return None
        if services.pauses.note(live):
            self._wake(namespace, name)
        try:
            pipeline = _usable(live)
        except InvalidSpec as error:
            await self._refuse(services, live, error)
            return services.resync
        if other := await self._scope.other(namespace, [zone.name for zone in pipeline.spec.zones]):
            await self._leave(services, live, other)
            return services.resync
        seen = await self._disputed(services, pipeline, live)
        if seen.dispute is not None:
            await self._write_status(services, pipeline, live, seen)
            return services.resync
        if pipeline.spec.paused:
            return await self._observe(services, pipeline, live)
        if exposed := open_replication_port(pipeline.spec):
            await self._warn_once(services, live, "ReplicationPortOpen", exposed)
        permitted, _ = services.permitted(namespace, name)
        return await self._reconcile(permitted, pipeline, live)

    async def _observe(self, services: Services, pipeline: BlockAggregator, live: Object) -> float:
        """What is reported of a pipeline that is paused."""
        contents = Contents(services.kubernetes, pipeline.namespace, services.folder)
        missing = await contents.read((*references_of_pods(pipeline.spec), *references(_cluster_login(pipeline))))
        own = labels.of_pipeline(pipeline.name)
        shards = await services.kubernetes.packed(SHARD_INGEST, pipeline.namespace, own)
        verifier, silence = await self._verdict(services, pipeline, contents)
        files = (await read_files(services, pipeline, contents, shards)).plan
        _, given = await secret_hashes(pipeline, contents, missing, shards)
        pipeline = replace(pipeline, files=files.config, secrets_hash=given)
        seen = PipelineSeen(
            shards=tuple(await self._shards.observed(pipeline, shards)),
            unusable_files=files.problems,
            files_missing=files.missing,
            surplus=tuple(sorted(surplus_shards(services, pipeline, shards))),
            draining=PAUSED,
            verifier=verifier,
            verifier_silence=silence,
            verifier_elsewhere=_elsewhere(services, pipeline),
            missing_references=missing,
            secrets=pipeline.status.secrets,  # as the shards were given
            paused=True,
        )
        await self._write_status(services, pipeline, live, seen)
        return services.resync

    async def _leave(self, services: Services, live: Object, other: str) -> None:
        """Another release serves it: report it once by an Event, and write nothing else."""
        await self._warn_once(services, live, "OtherOperator", other)

    async def _warn_once(self, services: Services, live: Object, reason: str, message: str) -> None:
        """An Event, unless this operator has emitted it before."""
        place = (live["metadata"]["uid"], message)
        if place not in self._reported:
            self._reported.add(place)
            await services.kubernetes.emit(live, warning=True, reason=reason, message=message, at=services.now())

    async def _report_step(self, services: Services, live: Object, step: PartsLoginStep) -> None:
        if step.begun:
            at = services.now()
            await services.kubernetes.emit(live, warning=False, reason="PartsPassword", message=step.begun, at=at)
        if step.waits:
            await self._warn_once(services, live, "PartsPasswordWaits", step.waits)

    async def _reconcile(self, services: Services, pipeline: BlockAggregator, live: Object) -> float:
        contents = Contents(services.kubernetes, pipeline.namespace, services.folder)
        missing = await contents.read((*references_of_pods(pipeline.spec), *references(_cluster_login(pipeline))))
        applied = Applied()
        credentials = await ensure_credentials(services, pipeline, applied)
        unpublished, step = await publish_users(services, pipeline, contents, credentials, applied)
        await self._report_step(services, live, step)
        own = labels.of_pipeline(pipeline.name)
        shards = await services.kubernetes.packed(SHARD_INGEST, pipeline.namespace, own)
        files = await read_files(services, pipeline, contents, shards)
        await publish_files(services, pipeline, files, applied)
        hashes, given = await secret_hashes(pipeline, contents, missing, shards)
        pipeline = replace(pipeline, files=files.plan.config, secrets_hash=given)
        due = self._shards.due(pipeline, shards) if not files.plan.held else []
        manifests = await self._apply(services, pipeline, due, shards, applied)
        removal = await remove_surplus(services, self._services, pipeline, shards)
        await self._prune(services, pipeline, manifests)
        verifier, silence = await self._verdict(services, pipeline, contents)
        states = await self._shards.states(pipeline, shards, applied)
        await prune_files(services, pipeline, files, states, applied)
        seen = PipelineSeen(
            shards=tuple(states),
            surplus=removal.left,
            draining=removal.draining,
            verifier=verifier,
            verifier_silence=silence,
            verifier_elsewhere=_elsewhere(services, pipeline),
            missing_references=missing,
            secrets=hashes,
            unpublished=unpublished,
            unusable_files=files.plan.problems,
            files_missing=files.plan.missing,
            taken=tuple(applied.taken),
            refused=tuple(applied.refused),
        )
        after = await self._write_status(services, pipeline, live, seen)
        raise_refused(pipeline.name, applied)
        return self._next(pipeline, after, applied, settled=step.settled and not (credentials and credentials.step))

    async def _apply(
        self,
        services: Services,
        pipeline: BlockAggregator,
        due: Sequence[int],
        shards: PackedObjects,
        applied: Applied,
    ) -> Sequence[Object]:
        """Write what belongs to the pipeline, and then these shards, by its spec alone, which was read. Returns the
        manifests but for shards."""
        own = children(pipeline, services.zones, ())
        applied.add(await apply_children(services.kubernetes, own, {}, pipeline.owners(), alone=True))
        await self._shards.write(services, pipeline, due, shards, applied)
        return own

    def _next(
        self, pipeline: BlockAggregator, status: BlockAggregatorStatus, applied: Applied, *, settled: bool
    ) -> float:
        if applied.left:
            return 0.0
        return self._backoff.next(
            (pipeline.namespace, pipeline.name),
            SOON,
            self._services.resync,
            settled=settled and calm(status.conditions) and not applied.ending,
            changed=status != pipeline.status or bool(applied.written),
        )

    async def _disputed(self, services: Services, pipeline: BlockAggregator, live: Object) -> PipelineSeen:
        """As far as other pipelines are concerned, which nothing is created for before."""
        others = []
        found, unread = await services.namespaces.list(services.kubernetes, BLOCK_AGGREGATOR)
        for other in found:
            try:
                parsed = parse_block_aggregator(other)
            except InvalidSpec:
                continue  # it loads nothing, so it claims nothing
            others.append(Claimant(parsed, other["metadata"].get("creationTimestamp", "")))
        disputed = conflict(Claimant(pipeline, live["metadata"].get("creationTimestamp", "")), others) or ""
        status = pipeline.status
        accepted = accepted_before(status.conditions, status.observed_generation, pipeline.generation)
        why = self._undisputed.judge(pipeline.uid, claims_of(pipeline), disputed, unread, accepted=accepted)
        return PipelineSeen(shards=(), conflict=disputed, undecided=why)

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
        if not pipeline.spec.verifier.enabled or _elsewhere(services, pipeline):
            return None, ""
        secret = names.internal_secret(pipeline.name)
        await contents.read([Reference("Secret", secret, "token")])
        tls = pipeline.spec.admin_tls
        base = services.endpoints.verifier(pipeline.name, pipeline.namespace, secure=tls is not None)
        try:
            return await services.http.verdict(base, contents.admin_login(pipeline.name, tls)), ""
        except Retryable as error:
            return None, str(error)

    async def _write_status(
        self, services: Services, pipeline: BlockAggregator, live: Object, seen: PipelineSeen
    ) -> BlockAggregatorStatus:
        status, conditions = describe_pipeline(pipeline.spec, seen)
        timed = with_times(services, pipeline.status.conditions, conditions, pipeline.generation)
        whole = status.model_copy(update={"conditions": timed, "observed_generation": pipeline.generation})
        await report(services, BLOCK_AGGREGATOR, live, pipeline.status.conditions, whole, timed)
        return whole

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


def _elsewhere(services: Services, pipeline: BlockAggregator) -> bool:
    """Whether the verifier runs where another operator serves the first zone."""
    return services.zones is not None and pipeline.spec.zones[0].name not in services.zones


def _cluster_login(pipeline: BlockAggregator) -> PasswordSecretRef | None:
    managed = pipeline.spec.clickhouse.managed
    return managed.cluster_secret_ref if managed is not None else None
