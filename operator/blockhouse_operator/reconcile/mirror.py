"""One reconcile of a KafkaMirror: make its pod and what that reads, ask its driver how it is, report.

Nothing keeps a mirror from being deleted: its children go by their owner references; topics and positions on the target
stay, so one that is re-created continues where it was.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import structlog

from blockhouse.config.mirror import MirrorConfig
from blockhouse.contract.mirror import MirrorStatus
from blockhouse.errors import Permanent, Retryable
from blockhouse_operator.adapters.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    DISRUPTION_BUDGET,
    KAFKA_MIRROR,
    NETWORK_POLICY,
    POD,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
    Object,
)
from blockhouse_operator.adapters.pipeline_http import AdminLogin
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.conditions import Condition, ConditionType, Reason, condition
from blockhouse_operator.api.mirror import KafkaMirrorStatus
from blockhouse_operator.api.resource import InvalidSpec, KafkaMirror, parse_mirror
from blockhouse_operator.decide.mirror import MirrorSeen, describe_mirror
from blockhouse_operator.decide.mirror_claims import MirrorClaimant, mirror_conflict
from blockhouse_operator.decide.pods import pod_seen, running
from blockhouse_operator.decide.references import Reference, references
from blockhouse_operator.decide.seen import PodSeen
from blockhouse_operator.desired import settings
from blockhouse_operator.desired.mirror import children, read_secret, secrets_digest, spec_hash, token_secret
from blockhouse_operator.reconcile.backoff import Backoff
from blockhouse_operator.reconcile.children import (
    Applied,
    apply_children,
    belongs_to_another,
    list_children,
    prune_children,
    raise_refused,
)
from blockhouse_operator.reconcile.report import report, with_times
from blockhouse_operator.reconcile.scope import Scope
from blockhouse_operator.reconcile.services import Services
from blockhouse_operator.reconcile.undisputed import Undisputed, accepted_before

log = structlog.get_logger(__name__)

SOON = 10.0
"""Seconds after which a mirror that is not as it should be is reconciled again, at first."""
KINDS = (SERVICE_ACCOUNT, CONFIG_MAP, SERVICE, DISRUPTION_BUDGET, NETWORK_POLICY, DEPLOYMENT)


class MirrorReconciler:
    """Reconciles every KafkaMirror."""

    def __init__(self, services: Services, scope: Scope) -> None:
        self._services = services
        self._scope = scope
        self._left: set[tuple[str, str]] = set()
        """UIDs of mirrors that another release runs, and what was reported of it."""
        self._undisputed = Undisputed()
        self._backoff = Backoff()
        self._passed_on: set[str] = set()
        """UIDs of mirrors whose annotation cannot be taken away, for want of a right: a request is passed on once."""

    async def reconcile(self, namespace: str, name: str) -> float | None:
        """Returns after how many seconds it wants the next reconcile; None when it is gone or going."""
        live = await self._services.kubernetes.get(KAFKA_MIRROR, namespace, name)
        if live is None or live["metadata"].get("deletionTimestamp"):
            self._backoff.forget((namespace, name))
            return None
        if other := await self._scope.other_of_mirrors(namespace):
            await self._leave(live, other)
            return self._services.resync
        try:
            mirror = parse_mirror(live)
            config = settings.mirror(mirror)
        except InvalidSpec as error:
            await self._refuse(live, error)
            return self._services.resync
        seen = await self._disputed(mirror, live)
        if seen.dispute is not None:
            await self._write(mirror, live, seen, config)
            return self._services.resync
        return await self._reconcile(mirror, live, config)

    async def _leave(self, live: Object, other: str) -> None:
        """Another release runs it: report it once by an Event, and write nothing else."""
        place = (live["metadata"]["uid"], other)
        if place not in self._left:
            self._left.add(place)
            now = self._services.now()
            await self._services.kubernetes.emit(live, warning=True, reason="OtherOperator", message=other, at=now)

    async def _reconcile(self, mirror: KafkaMirror, live: Object, config: MirrorConfig) -> float:
        services, applied = self._services, Applied()
        contents = Contents(services.kubernetes, mirror.namespace, services.folder)
        refers_to = references(mirror.spec)
        missing = await contents.read(refers_to)
        token = await self._token(mirror, applied)
        if token:
            reading = [read_secret(mirror, token)]
            applied.add(await apply_children(services.kubernetes, reading, {}, mirror.owners()))
        there = await list_children(services.kubernetes, KINDS, mirror.namespace, labels.of_mirror(mirror.name))
        # While a Secret is missing, a pod that runs is better than its successor, which could not start.
        if token and (mirror.spec.suspend or not missing):
            manifests = children(mirror, secrets_digest(token, _texts(contents, refers_to)))
            applied.add(await apply_children(services.kubernetes, manifests, there, mirror.owners()))
            await prune_children(services.kubernetes, manifests, there, mirror.uid)
        pod, answers = await self._pod(mirror)
        login = _login(token, mirror, contents)
        page, silence = await self._status(mirror, login, pod) if answers else (None, "no pod runs")
        seen = MirrorSeen(
            pod=pod,
            settled=_settled(there.get((DEPLOYMENT.name, names.mirror(mirror.name))), applied),
            answer=page,
            silence=silence,
            missing=missing,
            taken=tuple(applied.taken),
            refused=tuple(applied.refused),
        )
        after = await self._write(mirror, live, seen, config)
        asked = await self._rebalance(mirror, live, login, pod) if page is not None else not _wants_rebalance(live)
        raise_refused(mirror.name, applied)
        return self._next(mirror, after, applied, asked=asked)

    def _next(self, mirror: KafkaMirror, status: KafkaMirrorStatus, applied: Applied, *, asked: bool) -> float:
        """`asked`: no request for even tasks is left to be passed on."""
        return self._backoff.next(
            (mirror.namespace, mirror.name),
            SOON,
            self._services.resync,
            settled=asked and _calm(status.conditions) and not applied.ending,
            changed=status != mirror.status or bool(applied.written),
        )

    async def _disputed(self, mirror: KafkaMirror, live: Object) -> MirrorSeen:
        """As far as other mirrors are concerned."""
        others = []
        found, unread = await self._services.namespaces.list(self._services.kubernetes, KAFKA_MIRROR)
        for other in found:
            try:
                others.append(MirrorClaimant(parse_mirror(other), other["metadata"].get("creationTimestamp", "")))
            except InvalidSpec:
                continue  # it mirrors nothing, so it claims nothing
        mine, status = MirrorClaimant(mirror, live["metadata"].get("creationTimestamp", "")), mirror.status
        conflict = mirror_conflict(mine, others)
        accepted = accepted_before(status.conditions, status.observed_generation, mirror.generation)
        why = self._undisputed.judge(mirror.uid, mine.claims, conflict, unread, accepted=accepted)
        return MirrorSeen(conflict=conflict, undecided=why)

    async def _token(self, mirror: KafkaMirror, applied: Applied) -> str:
        """The token of the admin API, from the Secret that is created once; empty when that cannot be written."""
        services, name = self._services, names.mirror(mirror.name)
        found = await services.kubernetes.get(SECRET, mirror.namespace, name)
        if found is not None and (whose := belongs_to_another(found, mirror.owners())):
            applied.taken.append(f"Secret {name} {whose}; rename this mirror, or remove that object")
            return ""
        contents = Contents(services.kubernetes, mirror.namespace, services.folder)
        await contents.read([Reference("Secret", name, "token")])
        if token := contents.text(name, "token"):
            return token
        token = services.secret()
        try:
            await services.kubernetes.apply(token_secret(mirror, token), found)
        except Permanent as error:
            applied.refused.append(f"Secret {name} cannot be written: {error}")
            return ""
        return token

    async def _pod(self, mirror: KafkaMirror) -> tuple[PodSeen | None, bool]:
        """The pod that is not about to end, and whether its driver may answer."""
        selector = labels.of_mirror(mirror.name)
        pods = await self._services.kubernetes.list(POD, mirror.namespace, selector)
        live = [pod for pod in pods if not pod["metadata"].get("deletionTimestamp")]
        newest = max(live, key=lambda pod: str(pod["metadata"].get("creationTimestamp", "")), default=None)
        return (None, False) if newest is None else (pod_seen(newest), running(newest))

    def _base(self, mirror: KafkaMirror, pod: PodSeen | None) -> str:
        secure = pod is not None and pod.secure
        return self._services.endpoints.mirror(mirror.name, mirror.namespace, secure=secure)

    async def _status(
        self, mirror: KafkaMirror, login: AdminLogin, pod: PodSeen | None
    ) -> tuple[MirrorStatus | None, str]:
        try:
            return await self._services.http.mirror(self._base(mirror, pod), login), ""
        except Retryable as error:
            return None, str(error)

    async def _rebalance(self, mirror: KafkaMirror, live: Object, login: AdminLogin, pod: PodSeen | None) -> bool:
        """Pass a request for even tasks on, once, and take its annotation away. Returns whether none is left."""
        services = self._services
        if not _wants_rebalance(live):
            self._passed_on.discard(mirror.uid)
        if not _wants_rebalance(live) or services.dry_run or mirror.uid in self._passed_on:
            return True
        try:
            await services.http.rebalance(self._base(mirror, pod), login)
        except Retryable as error:
            log.warning("rebalance_not_requested", mirror=mirror.name, error=str(error))
            return False
        try:
            await services.kubernetes.annotate(live, {labels.REBALANCE: None}, why="the driver has the request")
        except Permanent as error:
            self._passed_on.add(mirror.uid)
            log.warning("annotation_left", mirror=mirror.name, error=str(error))
        message = "tasks are evened out when the driver next checks their load"
        await services.kubernetes.emit(
            live, warning=False, reason="RebalanceRequested", message=message, at=services.now()
        )
        return True

    async def _write(
        self, mirror: KafkaMirror, live: Object, seen: MirrorSeen, config: MirrorConfig
    ) -> KafkaMirrorStatus:
        status, conditions = describe_mirror(mirror.spec, seen, config)
        status = status.model_copy(update={"revision": spec_hash(mirror)})
        return await self._report(live, mirror.status, status, conditions)

    async def _refuse(self, live: Object, error: InvalidSpec) -> None:
        """Report what is wrong; the children stay as they are."""
        try:
            before = KafkaMirrorStatus.model_validate(live.get("status") or {})
        except ValueError:
            before = KafkaMirrorStatus()
        conditions = [
            condition(ConditionType.READY, False, Reason.INVALID_SPEC, str(error)),
            condition(ConditionType.STALLED, True, Reason.INVALID_SPEC, str(error)),
        ]
        await self._report(live, before, before.model_copy(update={"phase": "Stalled"}), conditions)

    async def _report(
        self, live: Object, before: KafkaMirrorStatus, status: KafkaMirrorStatus, conditions: Sequence[Condition]
    ) -> KafkaMirrorStatus:
        services, generation = self._services, live["metadata"].get("generation", 0)
        timed = with_times(services, before.conditions, conditions, generation)
        whole = status.model_copy(update={"conditions": timed, "observed_generation": generation})
        await report(services, KAFKA_MIRROR, live, before.conditions, whole, timed)
        return whole


def _login(token: str, mirror: KafkaMirror, contents: Contents) -> AdminLogin:
    ca = mirror.spec.admin_tls.ca_secret_ref if mirror.spec.admin_tls is not None else None
    return AdminLogin(token, contents.authorities(ca))


def _texts(contents: Contents, refers_to: Sequence[Reference]) -> Mapping[str, str]:
    return {f"{each.name}/{each.key}": contents.text(each.name, each.key, each.kind) or "" for each in refers_to}


def _wants_rebalance(live: Object) -> bool:
    return labels.REBALANCE in (live["metadata"].get("annotations") or {})


def _settled(deployment: Object | None, applied: Applied) -> bool:
    """Whether the Deployment, as it was before, needed no change and has its pods of its present template."""
    if deployment is None or f"{DEPLOYMENT.name} {deployment['metadata']['name']}" in applied.written:
        return False
    status, desired = deployment.get("status") or {}, deployment["spec"].get("replicas", 1)
    if status.get("observedGeneration", 0) < deployment["metadata"].get("generation", 0):
        return False
    return bool(status.get("updatedReplicas", 0) == desired == status.get("replicas", 0))


def _calm(conditions: Sequence[Condition]) -> bool:
    by_type = {found.type: found for found in conditions}
    ready = by_type.get(ConditionType.READY.value)
    settled = ready is not None and (ready.status == "True" or ready.reason == Reason.SUSPENDED.value)
    return settled and ConditionType.RECONCILING.value not in by_type
