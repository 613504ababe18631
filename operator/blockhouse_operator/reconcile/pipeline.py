"""One turn of a BlockAggregator: make its shards and its verifier, remove shards that may go, say how it all is."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import structlog

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.kinds import (
    BLOCK_AGGREGATOR,
    CONFIG_MAP,
    DEPLOYMENT,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    SHARD_INGEST,
    Object,
)
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.conditions import Condition, ConditionType, Reason, condition
from blockhouse_operator.api.resource import (
    BlockAggregator,
    InvalidSpec,
    parse_block_aggregator,
    parse_shard_ingest,
)
from blockhouse_operator.api.status import BlockAggregatorStatus, VerifierStatus
from blockhouse_operator.decide.claims import Claimant, conflict
from blockhouse_operator.decide.pipeline import PipelineSeen, ShardState, describe_pipeline
from blockhouse_operator.decide.references import Reference, references
from blockhouse_operator.decide.shard import drained
from blockhouse_operator.decide.streams import expected_streams
from blockhouse_operator.desired.aggregator import children, internal_secret
from blockhouse_operator.reconcile.children import (
    Applied,
    Children,
    apply_children,
    belongs_to_another,
    list_children,
    prune_children,
)
from blockhouse_operator.reconcile.observe import look_at_shard
from blockhouse_operator.reconcile.report import report, with_times
from blockhouse_operator.reconcile.services import Services
from blockhouse_operator.reconcile.shard import KINDS, parse_status

log = structlog.get_logger(__name__)

SOON = 10.0
VERIFIER_KINDS = (DEPLOYMENT, SERVICE, CONFIG_MAP, SERVICE_ACCOUNT)


@dataclass(frozen=True)
class _Removal:
    """Surplus shards that are there still, and what the one of the highest number waits for."""

    left: tuple[int, ...] = ()
    draining: str = ""


class PipelineTurns:
    """Turns of every pipeline."""

    def __init__(self, services: Services) -> None:
        self._services = services

    async def turn(self, namespace: str, name: str) -> float | None:
        """Returns after how many seconds it wants the next turn; None when it is gone or going: its children go by
        their owner references, invalid or not."""
        live = await self._services.kubernetes.get(BLOCK_AGGREGATOR, namespace, name)
        if live is None or live["metadata"].get("deletionTimestamp"):
            return None
        try:
            pipeline = parse_block_aggregator(live)
        except InvalidSpec as error:
            await self._refuse(live, error)
            return self._services.resync
        disputed = await self._conflict(pipeline, live)
        if disputed:
            await self._say(pipeline, live, PipelineSeen(shards=(), conflict=disputed))
            return self._services.resync
        return await self._reconcile(pipeline, live)

    async def _reconcile(self, pipeline: BlockAggregator, live: Object) -> float:
        services = self._services
        contents = Contents(services.kubernetes, pipeline.namespace, services.folder)
        missing = await contents.read(references(pipeline.spec))
        applied = Applied()
        await self._ensure_secret(pipeline, applied)
        shards = await list_children(
            services.kubernetes, [SHARD_INGEST], pipeline.namespace, labels.of_pipeline(pipeline.name)
        )
        manifests = children(pipeline, services.zones)
        applied = _joined(applied, await apply_children(services.kubernetes, manifests, shards, pipeline.uid))
        removal = await self._remove_surplus(pipeline, shards)
        await self._prune(pipeline, manifests)
        verifier, silence = await self._verdict(pipeline, contents)
        seen = PipelineSeen(
            shards=tuple(_states(pipeline, shards, applied)),
            surplus=removal.left,
            draining=removal.draining,
            verifier=verifier,
            verifier_silence=silence,
            verifier_elsewhere=services.zones is not None and pipeline.spec.zones[0].name not in services.zones,
            missing_references=missing,
            taken=tuple(applied.taken),
            refused=tuple(applied.refused),
        )
        after = await self._say(pipeline, live, seen)
        return services.resync if _calm(after) and not applied.ending else SOON

    async def _conflict(self, pipeline: BlockAggregator, live: Object) -> str | None:
        others = []
        for other in await self._services.kubernetes.list(BLOCK_AGGREGATOR, self._services.namespace):
            try:
                parsed = parse_block_aggregator(other)
            except InvalidSpec:
                continue  # it loads nothing, so it claims nothing
            others.append(Claimant(parsed, other["metadata"].get("creationTimestamp", "")))
        return conflict(Claimant(pipeline, live["metadata"].get("creationTimestamp", "")), others)

    async def _ensure_secret(self, pipeline: BlockAggregator, applied: Applied) -> None:
        """Made once. What is in it is never changed: pods have it."""
        name = names.internal_secret(pipeline.name)
        found = await self._services.kubernetes.get(SECRET, pipeline.namespace, name)
        if found is None:
            made = internal_secret(pipeline, token=self._services.secret(), password=self._services.secret())
            await self._services.kubernetes.apply(made, None)
        elif whose := belongs_to_another(found, pipeline.uid):
            applied.taken.append(f"Secret {name} {whose}; rename this pipeline, or remove that object")

    async def _remove_surplus(self, pipeline: BlockAggregator, shards: Children) -> _Removal:
        """Remove the surplus shard of the highest number, if the spec allows it and every message of it is stored."""
        surplus = {}
        for found in shards.values():
            number = int(found["metadata"]["labels"].get(labels.SHARD, "-1"))
            if number >= pipeline.spec.shards:
                surplus[number] = found
        left = tuple(sorted(surplus))
        if not left or pipeline.spec.shard_removal_policy != "Drain":
            return _Removal(left, "spec.shardRemovalPolicy forbids it" if left else "")
        last = surplus[max(left)]
        if last["metadata"].get("deletionTimestamp"):
            return _Removal(left, "it is ending")
        waits = await self._waits_for(last)
        if waits:
            return _Removal(left, waits)
        await self._services.kubernetes.delete(last, why="not in the spec any more, and every message is stored")
        return _Removal(left, "it is ending")

    async def _waits_for(self, live: Object) -> str:
        """What a shard still has to store before it may be removed; empty when there is nothing."""
        try:
            shard = parse_shard_ingest(live)
        except InvalidSpec as error:
            return f"its resource is invalid, so nobody knows whether it is drained: {error}"
        services = self._services
        contents = Contents(services.kubernetes, shard.namespace, services.folder)
        await contents.read([Reference("Secret", names.internal_secret(shard.spec.pipeline), "token")])
        of_shard = labels.of_shard(shard.spec.pipeline, shard.spec.shard)
        found = await list_children(services.kubernetes, KINDS, shard.namespace, of_shard)
        look = await look_at_shard(services, shard, found, contents, (), {})
        if drained(expected_streams(shard.spec), look.seen):
            return ""
        return "messages of its topics are not stored yet; stop producing to it"

    async def _prune(self, pipeline: BlockAggregator, manifests: Sequence[Object]) -> None:
        """Take away the verifier where it was switched off."""
        own = labels.of_pipeline(pipeline.name, names.VERIFIER)
        if pipeline.spec.verifier.enabled and any(m["kind"] == "Deployment" for m in manifests):
            return
        found = await list_children(self._services.kubernetes, VERIFIER_KINDS, pipeline.namespace, own)
        await prune_children(self._services.kubernetes, manifests, found, pipeline.uid)

    async def _verdict(self, pipeline: BlockAggregator, contents: Contents) -> tuple[VerifierStatus | None, str]:
        zones = self._services.zones
        if not pipeline.spec.verifier.enabled or (zones is not None and pipeline.spec.zones[0].name not in zones):
            return None, ""
        secret = names.internal_secret(pipeline.name)
        await contents.read([Reference("Secret", secret, "token")])
        base = self._services.endpoints.verifier(pipeline.name, pipeline.namespace)
        try:
            return await self._services.http.verdict(base, contents.text(secret, "token") or ""), ""
        except Retryable as error:
            return None, str(error)

    async def _say(self, pipeline: BlockAggregator, live: Object, seen: PipelineSeen) -> tuple[Condition, ...]:
        services = self._services
        status, conditions = describe_pipeline(pipeline.spec, seen)
        timed = with_times(services, pipeline.status.conditions, conditions, pipeline.generation)
        whole = status.model_copy(update={"conditions": timed, "observed_generation": pipeline.generation})
        await report(services, BLOCK_AGGREGATOR, live, pipeline.status.conditions, whole, timed)
        return timed

    async def _refuse(self, live: Object, error: InvalidSpec) -> None:
        """Say what is wrong; the children stay as they are."""
        services, generation = self._services, live["metadata"].get("generation", 0)
        try:
            before = BlockAggregatorStatus.model_validate(live.get("status") or {})
        except ValueError:
            before = BlockAggregatorStatus()
        said = [
            condition(ConditionType.READY, False, Reason.INVALID_SPEC, str(error)),
            condition(ConditionType.STALLED, True, Reason.INVALID_SPEC, str(error)),
        ]
        timed = with_times(services, before.conditions, said, generation)
        status = before.model_copy(update={"conditions": timed, "observed_generation": generation})
        await report(services, BLOCK_AGGREGATOR, live, before.conditions, status, timed)


def _states(pipeline: BlockAggregator, shards: Children, applied: Applied) -> list[ShardState]:
    """Every shard of the spec. One that was written in this turn has not told of its new spec yet."""
    found = []
    written = set(applied.written)
    for number in range(pipeline.spec.shards):
        name = names.shard_ingest(pipeline.name, number)
        live = shards.get((SHARD_INGEST.name, name))
        if live is None:
            found.append(ShardState(number, parse_status({}), current=False))
            continue
        status = parse_status(live)
        current = status.observed_generation == live["metadata"].get("generation")
        fresh = f"{SHARD_INGEST.name} {name}" not in written
        found.append(ShardState(number, status, current=current and fresh))
    return found


def _joined(one: Applied, other: Applied) -> Applied:
    return Applied(
        written=one.written + other.written,
        taken=one.taken + other.taken,
        refused=one.refused + other.refused,
        ending=one.ending + other.ending,
    )


def _calm(conditions: Sequence[Condition]) -> bool:
    by_type = {found.type: found for found in conditions}
    ready = by_type.get(ConditionType.READY.value)
    settled = ready is not None and (ready.status == "True" or ready.reason == Reason.SUSPENDED.value)
    return settled and ConditionType.RECONCILING.value not in by_type
