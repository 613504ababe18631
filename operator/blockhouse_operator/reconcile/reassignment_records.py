"""What must outlive a KafkaReassignment: its plan and how to end it, and what is ours in its Kafka cluster.

Neither record has an owner: a resource that is deleted while no operator runs leaves moves under way and throttles in
Kafka, and the next leader has to find both. The operator deletes them itself, once nothing is left to do.
"""

from __future__ import annotations

import asyncio
import base64
import gzip
import hashlib
import json
from collections.abc import Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any, TypeVar

from blockhouse.errors import Permanent, Retryable
from blockhouse.fleet.frozen import FrozenPlan, parse, render
from blockhouse.throttle import documents
from blockhouse.throttle.model import Overrides, Ownership
from blockhouse_operator.adapters.kinds import CONFIG_MAP, Object
from blockhouse_operator.adapters.kubernetes import Kubernetes
from blockhouse_operator.api import labels
from blockhouse_operator.api.kafka import KafkaCluster
from blockhouse_operator.api.reassignment import ReassignmentThrottle

PLAIN_LIMIT, WHOLE_LIMIT = 600_000, 1_000_000
"""Bytes: a longer plan is compressed; and what fits into a ConfigMap."""
WRITE_SECONDS = 60.0
Result = TypeVar("Result")


@dataclass(frozen=True, slots=True)
class PlanRecord:
    """A frozen plan and what is needed to end it without its resource."""

    uid: str
    plan: FrozenPlan
    cluster: KafkaCluster
    throttle: ReassignmentThrottle
    on_delete: str
    approved: bool

    def manifest(self, namespace: str, name: str) -> dict[str, Any]:
        """The ConfigMap. Raises Permanent when the plan does not fit into one."""
        text = render(self.plan)
        resource = {
            "uid": self.uid,
            "cluster": self.cluster.model_dump(mode="json", by_alias=True, exclude_none=True),
            "throttle": self.throttle.model_dump(mode="json", by_alias=True, exclude_none=True),
            "onDelete": self.on_delete,
            "approved": self.approved,
        }
        data = {"resource.json": json.dumps(resource)}
        binary: dict[str, str] = {}
        if len(text) <= PLAIN_LIMIT:
            data["plan.json"] = text
        else:
            binary["plan.json.gz"] = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
        if sum(map(len, (*data.values(), *binary.values()))) > WHOLE_LIMIT:
            raise Permanent(
                f"the plan has {len(self.plan.moves)} partitions and does not fit into a ConfigMap: "
                "choose fewer with spec.topics, and move the others by another resource",
                reason="PlanTooLarge",
            )
        return {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": plan_name(name),
                "namespace": namespace,
                "labels": labels.of_reassignment(name) | {labels.KAFKA_CLUSTER: short(self.plan.cluster_id)},
            },
            "data": data,
            **({"binaryData": binary} if binary else {}),
        }


def plan_name(name: str) -> str:
    """The ConfigMap of a reassignment."""
    return f"{name}-plan"


def short(cluster_id: str) -> str:
    """A Kafka cluster's id as a label and part of a name: ids may have characters that these may not."""
    return hashlib.sha256(cluster_id.encode()).hexdigest()[:12]


def read_plan_record(found: Object) -> PlanRecord:
    """Raises Permanent when it was changed beyond recognition."""
    where = f"ConfigMap {found['metadata']['name']}"
    data = found.get("data") or {}
    try:
        resource = json.loads(data["resource.json"])
        text = data.get("plan.json")
        if text is None:
            text = gzip.decompress(base64.b64decode(found["binaryData"]["plan.json.gz"])).decode()
        return PlanRecord(
            uid=resource["uid"],
            plan=parse(text, where),
            cluster=KafkaCluster.model_validate(resource["cluster"]),
            throttle=ReassignmentThrottle.model_validate(resource["throttle"]),
            on_delete=resource["onDelete"],
            approved=resource["approved"],
        )
    except (KeyError, ValueError, TypeError, OSError) as error:
        raise Permanent(
            f"{where} is not a record of a plan: {error}; check what moves, then delete it, and a new plan is computed",
            reason="PlanUnreadable",
        ) from error


def is_ours(found: Object, name: str) -> bool:
    """Whether a ConfigMap is the record of the reassignment, and not another object of that name."""
    known: Mapping[str, str] = found["metadata"].get("labels") or {}
    return known.get(labels.REASSIGNMENT) == name


class ThrottleRecord:
    """A `ThrottleStore` in a ConfigMap of each reassignment; used from threads, writes on the event loop.

    Each has its own, so that one that has ended never takes the throttles of the next for its own leftovers.
    """

    def __init__(
        self,
        kubernetes: Kubernetes,
        namespace: str,
        reassignment: str,
        cluster_id: str,
        overrides: Overrides,
        loop: asyncio.AbstractEventLoop,
    ) -> None:
        self._kubernetes = kubernetes
        self._namespace = namespace
        self._reassignment = reassignment
        self._cluster_id = cluster_id
        self._loop = loop
        self._overrides = overrides

    @property
    def name(self) -> str:
        return f"{self._reassignment}-throttle"

    def exclusive(self) -> AbstractContextManager[None]:
        """There is one leader, and one reconcile of a resource at a time."""
        return nullcontext()

    def ownership(self) -> Ownership:
        return self._wait(self.read())

    def overrides(self) -> Overrides:
        return self._overrides

    def remember(self, ownership: Ownership) -> None:
        self._wait(self._write(ownership))

    def forget_override(self, broker: int | None) -> None:
        """Overrides are in the resource's spec: one that has expired stays there and means nothing."""

    async def read(self) -> Ownership:
        found = await self._kubernetes.get(CONFIG_MAP, self._namespace, self.name)
        text = ((found or {}).get("data") or {}).get("record.json")
        if text is None:
            return Ownership()
        return documents.parse(text, f"ConfigMap {self.name}").ownership

    async def _write(self, ownership: Ownership) -> None:
        found = await self._kubernetes.get(CONFIG_MAP, self._namespace, self.name)
        if not ownership:
            if found is not None:
                await self._kubernetes.delete(found, why="no throttle is ours any more")
            return
        if found is not None and not is_ours(found, self._reassignment):
            raise Permanent(
                f"ConfigMap {self.name} belongs to something else; rename this reassignment, or remove that object",
                reason="NameTaken",
            )
        manifest = {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": {
                "name": self.name,
                "namespace": self._namespace,
                "labels": labels.of_reassignment(self._reassignment)
                | {labels.COMPONENT: "throttle", labels.KAFKA_CLUSTER: short(self._cluster_id)},
            },
            "data": {"record.json": documents.render(documents.Record(self._cluster_id, ownership))},
        }
        await self._kubernetes.apply(manifest, found)

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        future = asyncio.run_coroutine_threadsafe(work, self._loop)
        try:
            return future.result(WRITE_SECONDS)
        except TimeoutError:
            future.cancel()
            raise Retryable(f"ConfigMap {self.name} was not written within {WRITE_SECONDS:g} s") from None
