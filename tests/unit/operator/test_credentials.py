"""The pipeline's own Secret: made once, found again when it is lost, replaced on demand."""

from __future__ import annotations

import copy
from base64 import b64encode
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.adapters.kinds import Kind
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.desired.aggregator import clickhouse_secret
from blockhouse_operator.desired.clickhouse import Passwords
from blockhouse_operator.desired.credentials import Credentials
from blockhouse_operator.reconcile.children import Applied
from blockhouse_operator.reconcile.credentials import ensure_credentials
from blockhouse_operator.reconcile.services import Services
from tests.unit.operator.resources import pipeline

PIPELINE = pipeline()
SECRET = names.internal_secret("events")


class FakeKubernetes:
    """Secrets and pods in memory."""

    def __init__(self) -> None:
        self.secrets: dict[str, Any] = {}
        self.pods: list[Any] = []
        self.writes = 0

    async def get(self, _kind: Kind, _namespace: str, name: str) -> Any:
        return copy.deepcopy(self.secrets.get(name))

    async def list(self, *_: object) -> list[Any]:
        return self.pods

    async def apply(self, manifest: Any, _live: Any) -> str:
        self.writes += 1
        self.secrets[manifest["metadata"]["name"]] = copy.deepcopy(manifest)
        return "created"


class Operator:
    """One operator process after the other, on the same Kubernetes."""

    def __init__(self) -> None:
        self.kubernetes = FakeKubernetes()
        self.now = 0.0
        self.ahead = 0.0
        """Seconds by which the wall clock of the present process is off."""
        self._numbers = count(1)
        self.restart()

    def restart(self) -> None:
        unused: Any = None
        self.services = Services(
            kubernetes=cast(Any, self.kubernetes),
            http=unused,
            clickhouse=unused,
            endpoints=unused,
            ensembles=unused,
            fence=OpenFence(),
            troubles=unused,
            folder=unused,
            clock=lambda: self.now,
            wall=lambda: datetime.fromtimestamp(self.now + self.ahead, UTC),
            secret=lambda: f"secret-{next(self._numbers)}",
        )

    async def reconcile(self, of: BlockAggregator = PIPELINE) -> Credentials:
        found = await ensure_credentials(self.services, of, Applied())
        assert found is not None
        return found


@pytest.fixture
def operator() -> Operator:
    return Operator()


def asking(demand: str) -> BlockAggregator:
    return replace(PIPELINE, annotations={labels.ROTATE_CREDENTIALS: demand})


async def test_it_is_created_once(operator: Operator) -> None:
    first = await operator.reconcile()
    operator.restart()

    assert await operator.reconcile() == first
    assert operator.kubernetes.writes == 1


async def test_a_secret_of_an_earlier_operator_gets_a_salt_and_keeps_the_rest(operator: Operator) -> None:
    data = {key: b64encode(value).decode() for key, value in {"token": b"t", "password": b"p"}.items()}
    metadata = {"labels": labels.CHILD, "name": SECRET}
    operator.kubernetes.secrets[SECRET] = {"metadata": metadata, "data": data}

    found = await operator.reconcile()

    assert found.salt
    assert found == Credentials("t", ("p", ""), salt=found.salt)
    assert await operator.reconcile() == found
    assert operator.kubernetes.writes == 1


async def test_one_that_is_deleted_comes_back_with_the_same_content(operator: Operator) -> None:
    """Else every aggregator answers 401 until its pod is replaced."""
    first = await operator.reconcile()
    del operator.kubernetes.secrets[SECRET]

    assert await operator.reconcile() == first


async def test_one_that_is_deleted_while_no_operator_runs_gets_the_password_that_servers_have(
    operator: Operator,
) -> None:
    await operator.reconcile()
    operator.kubernetes.secrets.clear()
    for listed in ("Full", "Shard", "None"):
        for user, expected in (("cluster", ("known", "")), ("cluster-b", ("", "known"))):
            operator.restart()
            found = clickhouse_secret(pipeline(("spec.clickhouse.remoteServers", listed)), Passwords({user: "known"}))
            operator.kubernetes.secrets = {names.clickhouse_secret("events"): found}
            assert (await operator.reconcile()).passwords == expected


async def test_a_demand_rotates_by_overlap_and_a_new_leader_continues(operator: Operator) -> None:
    first = await operator.reconcile()
    accepted = await operator.reconcile(asking("monday"))
    assert accepted.former_token == first.token
    assert list(accepted.of_cluster) == ["cluster", "cluster-b"]
    contents = Contents(cast(Any, operator.kubernetes), "data", Path("/nonexistent"))
    await contents.object(SECRET)
    assert contents.admin_login("events", None).tokens == f"{accepted.token}\n{first.token}"

    operator.restart()
    operator.ahead = 900.0
    assert await operator.reconcile(asking("monday")) == accepted, "not by a clock that may be another one"
    operator.now = 200.0
    used = await operator.reconcile(asking("monday"))
    assert list(used.of_cluster) == ["cluster-b", "cluster"]
    assert await operator.reconcile(asking("monday")) == used
    operator.now = 400.0
    over = await operator.reconcile(asking("monday"))
    assert list(over.of_cluster) == ["cluster-b"]
    assert over.former_token == ""
    writes = operator.kubernetes.writes
    assert await operator.reconcile(asking("monday")) == over
    assert operator.kubernetes.writes == writes, "the same demand is followed once"


async def test_the_password_stays_while_a_pod_has_it_in_its_environment(operator: Operator) -> None:
    first = await operator.reconcile()
    item = {"name": "x", "items": [{"key": "users.xml", "path": "users.xml"}]}
    former = {"spec": {"volumes": [{"name": "v", "projected": {"sources": [{"configMap": item}]}}]}}
    operator.kubernetes.pods = [former]

    after = await operator.reconcile(asking("monday"))

    assert after.token != first.token
    assert after.of_cluster == first.of_cluster
