"""A pipeline from its shards: counts, the ten worst, conditions; and which shard may be removed. Pure and total."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass

from blockhouse_operator.api.conditions import Condition, ConditionType, Reason, condition, find
from blockhouse_operator.api.pipeline import BlockAggregatorSpec
from blockhouse_operator.api.status import (
    WORST_SHARDS,
    BlockAggregatorStatus,
    ClickHouseShardIngestStatus,
    ReadyCount,
    SecretHash,
    ShardSummary,
    StreamCount,
    VerifierStatus,
)
from blockhouse_operator.decide.claims import dispute
from blockhouse_operator.decide.replication_port import open_replication_port
from blockhouse_operator.decide.seen import State
from blockhouse_operator.decide.shard_conditions import PAUSED, not_compared
from blockhouse_operator.decide.words import counted

ABOUT_SHARDS = (
    ConditionType.PODS_UP_TO_DATE,
    ConditionType.TOPICS_PROVISIONED,
    ConditionType.SCHEMA_UP_TO_DATE,
    ConditionType.DEDUPLICATION_SAFE,
    ConditionType.QUORUM_HEALTHY,
)

LONGEST_MESSAGE, LONGEST_OF_A_SHARD = 400, 300
"""Characters: a pipeline's status stays below 10 kB, however many shards it has. The shard's own has the rest."""


@dataclass(frozen=True, slots=True)
class ShardState:
    """A shard as its own resource reports it.

    `current`: its status is about its present spec. `holds`: it is about an earlier one, from which the present one
    differs in nothing that `Ready` depends on.
    """

    number: int
    status: ClickHouseShardIngestStatus
    current: bool = True
    holds: bool = False

    def condition(self, kind: ConditionType) -> Condition | None:
        """The shard's condition of this kind; None before it has one."""
        return find(self.status.conditions, kind)

    @property
    def ready(self) -> bool:
        found = self.condition(ConditionType.READY)
        return (self.current or self.holds) and found is not None and found.status == "True"


@dataclass(frozen=True, slots=True)
class PipelineSeen:
    """A pipeline at one moment. `surplus` are numbers of shards that exist and are not in the spec.

    `verifier` is None where it does not answer, `verifier_silence` is why; `verifier_elsewhere`: it runs where
    another zone is served.
    """

    shards: tuple[ShardState, ...]
    surplus: tuple[int, ...] = ()
    draining: str = ""  # why the surplus shard of the highest number cannot be removed yet
    verifier: VerifierStatus | None = None
    verifier_silence: str = ""
    verifier_elsewhere: bool = False
    conflict: str = ""
    undecided: str = ""  # why it is not known whether there is a conflict
    missing_references: tuple[str, ...] = ()
    unpublished: tuple[str, ...] = ()  # users of ClickHouse that have no password, a sentence each
    unusable_files: tuple[str, ...] = ()  # files that are not published as they are in the spec, a sentence each
    files_missing: bool = False  # the source of the first of them
    taken: tuple[str, ...] = ()
    refused: tuple[str, ...] = ()
    secrets: tuple[SecretHash, ...] = ()
    paused: bool = False  # whether it is only observed

    @property
    def dispute(self) -> tuple[Reason, str] | None:
        return dispute(self.conflict, self.undecided)

    @property
    def carried_out(self) -> bool:
        """Whether the shards have the spec, or are being given it: those of a paused pipeline may be left behind."""
        return not self.paused or all(shard.current for shard in self.shards)


def describe_pipeline(
    spec: BlockAggregatorSpec, seen: PipelineSeen
) -> tuple[BlockAggregatorStatus, tuple[Condition, ...]]:
    """The status without conditions, and the conditions of this moment without times."""
    statuses = [shard.status for shard in seen.shards]
    replicas = [replica for status in statuses for replica in status.replicas if replica.served]
    well = (State.CONSUMING.value, State.SUSPENDED.value)
    status = BlockAggregatorStatus(
        shards=ReadyCount(
            desired=spec.shards,
            ready=sum(shard.ready for shard in seen.shards),
            updated=sum(_updated(shard) for shard in seen.shards),
        ),
        replicas=ReadyCount(
            desired=len(replicas),
            ready=sum(replica.state in well for replica in replicas),
            updated=sum(status.updated_replicas for status in statuses),
        ),
        streams=StreamCount(
            expected=sum(status.streams.expected for status in statuses),
            owned=sum(status.streams.owned for status in statuses),
            replaying=sum(status.streams.replaying for status in statuses),
            stopped=sum(status.streams.stopped for status in statuses),
        ),
        worst_shards=_worst(spec, seen),
        verifier=seen.verifier,
        secrets=seen.secrets,
    )
    return status, _conditions(spec, seen)


def _updated(shard: ShardState) -> bool:
    reconciling = shard.condition(ConditionType.RECONCILING)
    waits = reconciling is not None and reconciling.reason in (Reason.ROLLING_OUT, Reason.SCALING)
    return shard.current and not waits and shard.status.rollout is None


def _worst(spec: BlockAggregatorSpec, seen: PipelineSeen) -> tuple[ShardSummary, ...]:
    """Fewest consuming replicas first, then most streams without an owner."""
    if (spec.suspend or spec.stop) and seen.carried_out:
        return ()
    unwell = [shard for shard in seen.shards if not shard.ready]
    unwell.sort(key=lambda s: (s.status.ready_replicas, s.status.streams.owned - s.status.streams.expected, s.number))
    found = []
    for shard in unwell[:WORST_SHARDS]:
        ready = shard.condition(ConditionType.READY)
        if (ready is None or not shard.current) and seen.paused:
            found.append(ShardSummary(shard=shard.number, reason=Reason.PAUSED.value, message=f"is behind: {PAUSED}"))
        elif ready is None or not shard.current:
            found.append(ShardSummary(shard=shard.number, reason=Reason.PROGRESSING.value, message="is being created"))
        else:
            found.append(
                ShardSummary(shard=shard.number, reason=ready.reason, message=_cut(ready.message, LONGEST_OF_A_SHARD))
            )
    return tuple(found)


def _conditions(spec: BlockAggregatorSpec, seen: PipelineSeen) -> tuple[Condition, ...]:
    found = [_ready(spec, seen), _reconciling(spec, seen), _stalled(spec, seen)]
    found += [_worst_of(kind, seen) for kind in ABOUT_SHARDS]
    found += _published(spec, seen)
    found.append(_verifier(spec, seen))
    if seen.paused:
        found.append(condition(ConditionType.PAUSED, True, Reason.PAUSED, PAUSED))
    if spec.stop and seen.carried_out:
        found.append(condition(ConditionType.SUSPENDED, True, Reason.SHUT_DOWN, "spec.stop is true"))
    elif spec.suspend and seen.carried_out:
        found.append(condition(ConditionType.SUSPENDED, True, Reason.SUSPENDED, "spec.suspend is true"))
    return tuple(
        each.model_copy(update={"message": _cut(each.message, LONGEST_MESSAGE)}) for each in found if each is not None
    )


def _cut(message: str, longest: int) -> str:
    return message if len(message) <= longest else f"{message[: longest - 3]}..."


def _obstacle(seen: PipelineSeen) -> tuple[Reason, str] | None:
    """What only a person can take out of the way, in this resource or in a shard."""
    if seen.dispute is not None:
        return seen.dispute
    if seen.refused:
        return Reason.FORBIDDEN, seen.refused[0]
    if seen.taken:
        return Reason.NAME_TAKEN, seen.taken[0]
    if seen.missing_references:
        return Reason.SECRET_MISSING, "; ".join(seen.missing_references[:5])
    if seen.unusable_files:
        return _about_files(seen)
    for shard in seen.shards:
        stalled = shard.condition(ConditionType.STALLED)
        if stalled is not None and stalled.status == "True":
            return _reason(stalled), f"shard {shard.number}: {stalled.message}"
    return None


def _about_files(seen: PipelineSeen) -> tuple[Reason, str]:
    return Reason.SECRET_MISSING if seen.files_missing else Reason.INVALID_FILE, "; ".join(seen.unusable_files[:5])


def _reason(found: Condition) -> Reason:
    return next((reason for reason in Reason if reason.value == found.reason), Reason.STATUS_UNKNOWN)


def _ready(spec: BlockAggregatorSpec, seen: PipelineSeen) -> Condition:
    kind = ConditionType.READY
    if seen.dispute is not None:
        return condition(kind, False, *seen.dispute)
    if spec.stop and seen.carried_out:
        return condition(kind, False, Reason.SHUT_DOWN, "spec.stop is true: nothing is loaded, and no query answered")
    if spec.suspend and seen.carried_out:
        return condition(kind, False, Reason.SUSPENDED, "spec.suspend is true: nothing is loaded")
    if (ready := sum(shard.ready for shard in seen.shards)) == spec.shards:
        warning = f"; {found}" if (found := open_replication_port(spec)) else ""
        text = f"{counted(ready, 'shard is', 'shards are')} ready{warning}"
        return condition(kind, True, Reason.ALL_CONSUMING, text)
    if obstacle := _obstacle(seen):
        return condition(kind, False, *obstacle)
    worst = _worst(spec, seen)
    if worst and worst[0].reason and spec.shards == 1:
        only = seen.shards[0].condition(ConditionType.READY)
        if only is not None and only.status == "False" and seen.shards[0].current:
            return condition(kind, False, _reason(only), only.message)
    names = ", ".join(f"{shard.shard} ({shard.reason})" for shard in worst[:5])
    text = f"{ready} of {counted(spec.shards, 'shard is', 'shards are')} ready; not: {names}"
    return condition(kind, False, Reason.SHARDS_NOT_READY, text)


def _reconciling(spec: BlockAggregatorSpec, seen: PipelineSeen) -> Condition | None:
    kind = ConditionType.RECONCILING
    if _obstacle(seen) is not None or (seen.surplus and spec.shard_removal_policy == "Forbid"):
        return None
    behind = [str(shard.number) for shard in seen.shards if not shard.current]
    if behind or len(seen.shards) < spec.shards:
        message = f"{counted(len(behind), 'shard is', 'shards are')} behind the spec"
        reason = Reason.PAUSED if seen.paused else Reason.PROGRESSING
        return condition(kind, True, reason, f"{message}; {PAUSED}" if seen.paused else message)
    if seen.surplus:
        message = f"shard {max(seen.surplus)} is being removed{f': {seen.draining}' if seen.draining else ''}"
        return condition(kind, True, Reason.DRAINING, message)
    busy = [
        (shard, found)
        for shard in seen.shards
        if (found := shard.condition(ConditionType.RECONCILING)) is not None and found.status == "True"
    ]
    if not busy:
        return None
    reason = Counter(_reason(found) for _, found in busy).most_common(1)[0][0]
    shard, first = next((shard, found) for shard, found in busy if found.reason == reason.value)
    return condition(kind, True, reason, f"shard {shard.number}: {first.message}{_more(busy)}")


def _stalled(spec: BlockAggregatorSpec, seen: PipelineSeen) -> Condition | None:
    if obstacle := _obstacle(seen):
        return condition(ConditionType.STALLED, True, *obstacle)
    if seen.surplus and spec.shard_removal_policy == "Forbid":
        shown = ", ".join(map(str, seen.surplus[:10]))
        message = f"shard {shown} exists and is not in the spec; spec.shardRemovalPolicy is Forbid"
        return condition(ConditionType.STALLED, True, Reason.REMOVAL_FORBIDDEN, message)
    return None


def _more(shards: list[tuple[ShardState, Condition]]) -> str:
    """That the first of them is not the only one."""
    return f" (and {counted(len(shards) - 1, 'more shard', 'more shards')})" if len(shards) > 1 else ""


def _worst_of(kind: ConditionType, seen: PipelineSeen) -> Condition:
    """False if it is false in a shard, unknown if it is unknown in one, else true."""
    found = [(shard, each) for shard in seen.shards if (each := shard.condition(kind)) is not None]
    for state, value in (("False", False), ("Unknown", None)):
        bad = [(shard, each) for shard, each in found if each.status == state]
        if bad:
            shard, first = bad[0]
            return condition(kind, value, _reason(first), f"shard {shard.number}: {first.message}{_more(bad)}")
    if len(found) < len(seen.shards) or not found:
        return condition(kind, None, Reason.PROGRESSING, "not all shards have been observed")
    return condition(kind, True, Reason.AS_SPECIFIED)


def _published(spec: BlockAggregatorSpec, seen: PipelineSeen) -> Iterator[Condition]:
    """Of a managed ClickHouse."""
    managed, users, files = spec.clickhouse.managed, ConditionType.USERS_PUBLISHED, ConditionType.FILES_PUBLISHED
    if managed is None or seen.dispute is not None:
        return
    if seen.paused:
        yield not_compared(users)
    elif seen.unpublished:
        yield condition(users, False, Reason.SECRET_MISSING, "; ".join(seen.unpublished[:5]))
    else:
        yield condition(users, True, Reason.AS_SPECIFIED)
    if seen.unusable_files:
        yield condition(files, False, *_about_files(seen))
    elif managed.config_files or managed.user_files:
        yield condition(files, True, Reason.AS_SPECIFIED)


def _verifier(spec: BlockAggregatorSpec, seen: PipelineSeen) -> Condition:
    kind = ConditionType.VERIFIER_HEALTHY
    if not spec.verifier.enabled:
        return condition(kind, None, Reason.DISABLED, "spec.verifier.enabled is false")
    if seen.verifier_elsewhere:
        return condition(kind, None, Reason.DISABLED, f"it runs where zone {spec.zones[0].name} is served")
    if seen.verifier is None:
        return condition(kind, None, Reason.VERIFIER_UNREACHABLE, seen.verifier_silence)
    if seen.verifier.verdict == "clean":
        return condition(kind, True, Reason.NO_ANOMALIES)
    if seen.verifier.verdict == "unknown":
        return condition(kind, None, Reason.VERIFIER_STARTING)
    message = f"{seen.verifier.anomalies} anomalies; see 'blockhouse verify' and the verifier's /anomalies"
    return condition(kind, False, Reason.ANOMALIES_FOUND, message)
