"""A Kubernetes in memory, a driver that answers, and an operator that reconciles one mirror with both."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, cast

from blockhouse.contract.mirror import MirrorStatus
from blockhouse.errors import Permanent, Retryable
from blockhouse_operator.adapters.endpoints import Endpoints
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.adapters.kinds import Kind, kind_of
from blockhouse_operator.adapters.pipeline_http import AdminLogin
from blockhouse_operator.api import labels
from blockhouse_operator.reconcile.mirror import MirrorReconciler
from blockhouse_operator.reconcile.services import Services
from tests.unit.operator.mirrors import kafka_mirror, page, partition

SECRETS = ("kafka-east-ca", "kafka-east-login", "kafka-agg-ca", "kafka-agg-client")
KEYS = {"ca.crt": "Y2E=", "password": "cHc=", "tls.crt": "Y3J0", "tls.key": "a2V5"}


class World:
    """As much of an API server and of a driver as a reconcile needs."""

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str], dict[str, Any]] = {}
        self.status: dict[str, Any] = {}
        self.events: list[str] = []
        self.refused: set[str] = set()
        """Kinds that may not be written; with `annotate`, annotations."""
        self.page: MirrorStatus | None = page(partition())
        self.tokens: set[str] = set()
        self.rebalances = 0
        for name in SECRETS:
            self.put({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "data": dict(KEYS)})

    def put(self, found: dict[str, Any]) -> None:
        found = copy.deepcopy(found)
        found["metadata"].setdefault("namespace", "data")
        self.objects[found["kind"], found["metadata"]["name"]] = found

    def kinds(self) -> set[str]:
        return {kind for kind, name in self.objects if name == "east-mirror"}

    @property
    def mirror(self) -> dict[str, Any]:
        return self.objects["KafkaMirror", "east"]

    @property
    def template(self) -> dict[str, Any]:
        found: dict[str, Any] = self.objects["Deployment", "east-mirror"]["spec"]["template"]
        return found

    # --- as the API server -----------------------------------------------------------------------------------

    async def get(self, kind: Kind, _namespace: str, name: str) -> Any:
        return copy.deepcopy(self.objects.get((kind.name, name)))

    async def list(self, kind: Kind, _namespace: str | None, given: Mapping[str, str] | None = None) -> list[Any]:
        found = [found for (name, _), found in self.objects.items() if name == kind.name]
        return [each for each in found if (given or {}).items() <= each["metadata"].get("labels", {}).items()]

    async def apply(self, manifest: Any, live: Any, **_: bool) -> str:
        if manifest["kind"] in self.refused:
            raise Permanent("not allowed", reason="Forbidden")
        if live is not None and all(live.get(key) == value for key, value in manifest.items()):
            return "unchanged"
        self.put({**copy.deepcopy(manifest), "status": (live or {}).get("status", {})})
        return "changed"

    async def apply_status(self, _kind: Kind, live: Any, status: Any) -> bool:
        before = live.get("status", {})
        self.objects[live["kind"], live["metadata"]["name"]]["status"] = status
        return bool(before != status)

    async def delete(self, live: Any, *, why: str) -> None:
        assert why
        del self.objects[kind_of(live).name, live["metadata"]["name"]]

    async def annotate(self, live: Any, annotations: Mapping[str, str | None], *, why: str) -> None:
        assert why
        if "annotate" in self.refused:
            raise Permanent("not allowed", reason="Forbidden")
        for key in annotations:
            del self.objects[live["kind"], live["metadata"]["name"]]["metadata"]["annotations"][key]

    async def emit(self, _about: Any, *, warning: bool, reason: str, message: str, at: str) -> None:
        assert (warning, message, at) is not None
        self.events.append(reason)

    # --- as the controllers and the driver -------------------------------------------------------------------

    def start(self, *, ready: bool = True) -> None:
        """The Deployment makes its pod, which becomes ready."""
        found = self.objects["Deployment", "east-mirror"]
        expected = found["spec"]["replicas"]
        found["status"] = {"observedGeneration": 0, "replicas": expected, "updatedReplicas": expected}
        meta = {"name": "pod", "labels": labels.of_mirror("east"), "creationTimestamp": "2026-01-01T00:00:00Z"}
        conditions = [{"type": "Ready", "status": "True" if ready else "False"}]
        self.put({"kind": "Pod", "metadata": meta, "status": {"phase": "Running", "conditions": conditions}})

    async def http_mirror(self, base: str, login: AdminLogin) -> MirrorStatus:
        assert base == "http://east-mirror.data.svc:8080"
        self.tokens.add(login.tokens)
        if self.page is None:
            raise Retryable("it does not answer")
        return self.page


class Http:
    def __init__(self, world: World) -> None:
        self.mirror = world.http_mirror
        self._world = world

    async def rebalance(self, _base: str, _login: AdminLogin) -> None:
        self._world.rebalances += 1


class OneRelease:
    """A scope: `other` is what is reported of another release; empty while there is none."""

    other = ""

    async def other_of_mirrors(self, _namespace: str) -> str:
        return self.other


class Operator:
    def __init__(self, folder: Path) -> None:
        self.world = World()
        unused: Any = None
        numbers = count(1)
        self.scope = OneRelease()
        self._reconciler = MirrorReconciler(
            Services(
                kubernetes=cast(Any, self.world),
                http=cast(Any, Http(self.world)),
                clickhouse=unused,
                endpoints=Endpoints(),
                ensembles=unused,
                fence=OpenFence(),
                troubles=unused,
                folder=folder,
                clock=unused,
                wall=lambda: datetime(2026, 1, 1, tzinfo=UTC),
                secret=lambda: f"token-{next(numbers)}",
            ),
            cast(Any, self.scope),
        )

    async def reconcile(self, *changes: tuple[str, Any]) -> float | None:
        """Apply the example with changes, and reconcile it."""
        live = kafka_mirror(*changes)
        before = self.world.objects.get(("KafkaMirror", "east"), {})
        self.world.put({**live, "status": before.get("status", {})})
        return await self.again()

    async def again(self) -> float | None:
        return await self._reconciler.reconcile("data", "east")

    def condition(self, kind: str) -> tuple[str, str]:
        conditions = self.world.mirror["status"]["conditions"]
        return next(((each["status"], each["reason"]) for each in conditions if each["type"] == kind), ("", ""))
