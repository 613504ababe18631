"""What a KafkaReassignment asks for, as a plan of `blockhouse.placement`, and what identifies that question."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, replace

from blockhouse.config.units import size_bytes
from blockhouse.fleet.frozen import FrozenPlan, Seen
from blockhouse.fleet.model import Storage
from blockhouse.placement.leadership import balance_leaders, evacuate_leadership
from blockhouse.placement.membership import compare_membership
from blockhouse.placement.model import Broker, InvalidInput, PartitionMap, Sizes
from blockhouse.placement.plan import Plan
from blockhouse.placement.rebalance import RebalanceOptions, plan_rebalance
from blockhouse.placement.rebuild import RebuildOptions, plan_rebuild
from blockhouse.placement.report import Distribution, report_on
from blockhouse.placement.topics import select_topics
from blockhouse_operator.api.reassignment import KafkaReassignmentSpec, PlanStatus

GIB = 1 << 30


@dataclass(frozen=True, slots=True)
class PlanInputs:
    """A cluster to plan on: what is where, live brokers with their racks, and measured storage."""

    seen: Seen
    brokers: Mapping[int, Broker]
    storage: Storage


def question(spec: KafkaReassignmentSpec) -> str:
    """Changes whenever another plan may be asked for; not with throttles, pauses or approvals."""
    asked = spec.model_dump(
        mode="json",
        include={
            "operation",
            "topics",
            "brokers",
            "leaving",
            "replication_factor",
            "placement",
            "cluster",
            "cluster_ref",
        },
    )
    asked["phased"] = spec.execution.phased
    if asked.get("cluster"):
        asked["cluster"] = {"name": asked["cluster"]["name"]}  # the cluster itself is known by its id
    return hashlib.sha256(json.dumps(asked, sort_keys=True).encode()).hexdigest()[:16]


def make_plan(spec: KafkaReassignmentSpec, inputs: PlanInputs) -> Plan:
    """The plan. Raises InvalidInput naming everything that prevents it, moves of others included."""
    everything = PartitionMap({key: state.replicas for key, state in inputs.seen.partitions.items()})
    current = select_topics(everything, spec.topics.include, spec.topics.exclude)
    moving = [str(key) for key in inputs.seen.moves if key in current]
    if moving:
        raise InvalidInput(
            [f"partitions are being reassigned by something else ({', '.join(moving[:3])}); wait for their end"]
        )
    strangers = sorted(set(spec.brokers) - inputs.brokers.keys())
    if strangers:
        raise InvalidInput(
            [f"spec.brokers: {', '.join(map(str, strangers))}: no such brokers are alive in the cluster"]
        )
    cluster = {id: replace(broker, free=inputs.storage.free.get(id)) for id, broker in inputs.brokers.items()}
    desired = [id for id in (spec.brokers or sorted(cluster)) if id not in spec.leaving]
    if not desired:
        raise InvalidInput(["no broker is left to hold replicas: give brokers, or fewer in leaving"])
    plan = _made(spec, current, cluster, desired, inputs.storage.sizes)
    if plan.errors:
        raise InvalidInput(plan.errors)
    return plan


def plan_status(plan: Plan, sizes: Sizes, hash: str, config_map: str) -> PlanStatus:
    """What people need to approve a plan, or not."""
    report = report_on(plan, sizes)
    changed = plan.after.changed_from(plan.before)
    return PlanStatus(
        hash=hash,
        config_map=config_map,
        partitions=len(changed),
        replicas_moved=report.replicas_moved,
        bytes=round(report.bytes_moved or 0),
        summary=_summary(report.before, report.after)[:2000],
        notes="; ".join((*report.notes, *report.warnings))[:2000],
    )


def shown_plan(before: PlanStatus, plan: FrozenPlan, config_map: str) -> PlanStatus:
    """The plan as the status shows it; of one whose status was lost, what its record has."""
    if before.hash == plan.hash:
        return before
    copied = sum(len(set(move.after) - set(move.before)) for move in plan.moves)
    return PlanStatus(
        hash=plan.hash,
        config_map=config_map,
        partitions=len(plan.moves),
        replicas_moved=copied,
        bytes=round(plan.bytes),
    )


def _made(
    spec: KafkaReassignmentSpec,
    current: PartitionMap,
    cluster: Mapping[int, Broker],
    desired: list[int],
    sizes: Sizes,
) -> Plan:
    placement = spec.placement
    if spec.operation == "Leadership":
        after, errors = evacuate_leadership(current, spec.leaving)
        if not spec.leaving or placement.optimize_leadership:
            after = balance_leaders(after)
        members = compare_membership(current, cluster, sorted(cluster))
        return Plan(current, after, cluster, members, errors=errors)
    if spec.operation in ("Rebalance", "Scale"):
        return plan_rebalance(current, cluster, desired, sizes, _rebalance_options(spec))
    return plan_rebuild(current, cluster, desired, _rebuild_options(spec), sizes)


def _rebalance_options(spec: KafkaReassignmentSpec) -> RebalanceOptions:
    placement = spec.placement
    return RebalanceOptions(
        operation="scale" if spec.operation == "Scale" else "rebalance",
        threshold=placement.storage_threshold_percent / 100,
        partition_limit=placement.partition_limit,
        min_partition_mib=size_bytes(placement.partition_size_threshold) / (1 << 20),
        rack_local=placement.rack_local,
        min_rack_ids=placement.min_rack_ids,
        optimize_leadership=placement.optimize_leadership,
    )


def _rebuild_options(spec: KafkaReassignmentSpec) -> RebuildOptions:
    placement = spec.placement
    return RebuildOptions(
        placement="storage" if placement.by == "Storage" else "count",
        optimize="storage" if placement.optimize == "Storage" else "distribution",
        replication=spec.replication_factor or 0,
        force=placement.forget_current,
        sub_affinity=placement.sub_affinity,
        optimize_leadership=placement.optimize_leadership,
        min_rack_ids=placement.min_rack_ids,
        size_factor=placement.size_factor_percent / 100,
    )


def _summary(before: Distribution, after: Distribution) -> str:
    text = (
        f"partners of a broker (min/max/mean) {before.degree_min}/{before.degree_max}/{before.degree_mean:.1f} -> "
        f"{after.degree_min}/{after.degree_max}/{after.degree_mean:.1f}"
    )
    if before.storage_range is None or after.storage_range is None:
        return text
    return f"{text}; free space range {before.storage_range / GIB:.2f} -> {after.storage_range / GIB:.2f} GiB"
