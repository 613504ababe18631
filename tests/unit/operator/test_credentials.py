"""The pipeline's own Secrets: made once, found again when they are lost, replaced on demand, apart from each other."""

from __future__ import annotations

import copy
from base64 import b64decode, b64encode
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from pathlib import Path
from typing import Any, cast

import pytest

from blockhouse.tokens import read_only
from blockhouse_operator.adapters.fence import OpenFence
from blockhouse_operator.adapters.kinds import POD, STATEFUL_SET, Kind
from blockhouse_operator.adapters.secrets import Contents
from blockhouse_operator.api import labels, names
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.desired.aggregator import clickhouse_secret
from blockhouse_operator.desired.clickhouse import Passwords
from blockhouse_operator.desired.credentials import Credentials
from blockhouse_operator.desired.own_secrets import own_secrets
from blockhouse_operator.reconcile.children import Applied
from blockhouse_operator.reconcile.credentials import cluster_logins, ensure_credentials
from blockhouse_operator.reconcile.services import Services
from tests.unit.operator.resources import pipeline

PIPELINE = pipeline()
SECRET = names.internal_secret("events")
READ, PASSWORD = names.read_secret("events"), names.password_secret("events")
FORMER = {"token": "t", "password": "p", "salt": "s"}
"""Content of the one Secret of earlier operators."""


class FakeKubernetes:
    """Secrets and pods in memory."""

    def __init__(self) -> None:
        self.secrets: dict[str, Any] = {}
        self.pods: list[Any] = []
        self.sets: list[Any] = []
        self.writes = 0

    async def get(self, _kind: Kind, _namespace: str, name: str) -> Any:
        return copy.deepcopy(self.secrets.get(name))

    async def list(self, kind: Kind, *_: object) -> list[Any]:
        return {POD: self.pods, STATEFUL_SET: self.sets}[kind]

    def content(self, name: str) -> dict[str, str]:
        return {key: b64decode(value).decode() for key, value in self.secrets[name]["data"].items()}

    def put(self, name: str, **content: str) -> None:
        data = {key: b64encode(value.encode()).decode() for key, value in content.items()}
        self.secrets[name] = {"metadata": {"labels": labels.CHILD, "name": name}, "data": data}

    async def apply(self, manifest: Any, live: Any, **_: bool) -> str:
        if manifest == live:
            return "unchanged"
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
    assert operator.kubernetes.writes == 3


async def test_a_secret_of_an_earlier_operator_gets_a_salt_and_keeps_the_rest(operator: Operator) -> None:
    operator.kubernetes.put(SECRET, token="t", password="p")

    found = await operator.reconcile()

    assert found.salt
    assert found == Credentials("t", ("p", ""), salt=found.salt)
    assert await operator.reconcile() == found
    assert operator.kubernetes.writes == 3


@pytest.mark.parametrize("name", [SECRET, READ, PASSWORD])
async def test_one_that_is_deleted_comes_back_with_the_same_content(operator: Operator, name: str) -> None:
    """Else every aggregator answers 401 until its pod is replaced."""
    first = await operator.reconcile()
    before = operator.kubernetes.secrets.pop(name)

    assert await operator.reconcile() == first
    assert operator.kubernetes.secrets[name] == before


async def test_each_secret_has_nothing_of_the_others(operator: Operator) -> None:
    first = await operator.reconcile()
    content = operator.kubernetes.content
    assert set(content(SECRET)) == {"token", "salt", "passwords"}
    assert content(READ) == {"token": read_only(first.token)}
    assert content(PASSWORD) == {"password": first.passwords[0]}


async def test_one_of_an_earlier_operator_is_taken_apart_and_nothing_in_it_changes(operator: Operator) -> None:
    operator.kubernetes.put(SECRET, **FORMER)

    assert await operator.reconcile() == Credentials("t", ("p", ""), salt="s")

    content = operator.kubernetes.content
    assert content(PASSWORD) == {"password": "p"}
    assert content(READ) == {"token": read_only("t")}
    assert content(SECRET) == {"token": "t", "salt": "s", "passwords": PASSWORD}


async def test_an_operator_that_ends_between_two_writes_loses_no_password(operator: Operator) -> None:
    """The first write is that of the passwords: until they are gone beside the token, those count."""
    operator.kubernetes.put(SECRET, **FORMER)
    kept = own_secrets(PIPELINE, Credentials("t", ("p", "")), both=False)[0]
    assert kept["metadata"]["name"] == PASSWORD
    operator.kubernetes.secrets[PASSWORD] = kept

    assert (await operator.reconcile()).passwords == ("p", "")


async def test_passwords_that_an_earlier_operator_wrote_since_are_the_newest(operator: Operator) -> None:
    """After a way back to it, and a rotation there: it takes the key of ours away."""
    await operator.reconcile()
    operator.kubernetes.put(SECRET, **{**FORMER, "password": "newest"})
    operator.restart()

    assert (await operator.reconcile()).passwords == ("newest", "")
    assert operator.kubernetes.content(PASSWORD) == {"password": "newest"}


@pytest.mark.parametrize("of", ["pods", "sets"])
async def test_a_password_in_the_environment_of_a_pod_stays_where_the_pod_finds_it(operator: Operator, of: str) -> None:
    """Its container would not start again without."""
    reference = {"name": SECRET, "key": "password"}
    pod = {"containers": [{"env": [{"name": "A", "value": "a"}, {"valueFrom": {"secretKeyRef": reference}}]}]}
    found = getattr(operator.kubernetes, of)
    found.append({"spec": pod if of == "pods" else {"template": {"spec": pod}}})
    operator.kubernetes.put(SECRET, **FORMER)

    first = await operator.reconcile()
    assert operator.kubernetes.content(SECRET)["password"] == "p"
    del operator.kubernetes.secrets[SECRET]
    assert await operator.reconcile() == first
    assert operator.kubernetes.content(SECRET)["password"] == "p"
    assert operator.kubernetes.content(PASSWORD) == {"password": "p"}

    found.clear()
    assert await operator.reconcile() == first
    assert "password" not in operator.kubernetes.content(SECRET)


async def test_a_lost_secret_of_passwords_takes_the_token_with_it_in_no_case(operator: Operator) -> None:
    first = await operator.reconcile()
    del operator.kubernetes.secrets[PASSWORD]
    operator.kubernetes.secrets[names.clickhouse_secret("events")] = clickhouse_secret(
        pipeline(("spec.clickhouse.remoteServers", "Full")), Passwords({"cluster": first.passwords[0]})
    )
    operator.restart()

    assert await operator.reconcile() == first


async def test_a_name_that_is_taken_is_named_and_nothing_is_written(operator: Operator) -> None:
    for name in (SECRET, READ, PASSWORD):
        operator.kubernetes.secrets = {name: {"metadata": {"name": name}, "data": {}}}
        applied = Applied()
        assert await ensure_credentials(operator.services, PIPELINE, applied) is None
        assert applied.taken == [
            f"Secret {name} was not created by a Blockhouse operator; rename this pipeline, or remove that object"
        ]
    assert operator.kubernetes.writes == 0


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
    assert await cluster_logins(contents, "events") == accepted.of_cluster
    reading = operator.kubernetes.content
    assert reading(READ) == {"token": read_only(first.token), "other-token": read_only(accepted.token)}

    operator.restart()
    operator.ahead = 900.0
    assert await operator.reconcile(asking("monday")) == accepted, "not by a clock that may be another one"
    operator.now = 200.0
    used = await operator.reconcile(asking("monday"))
    assert list(used.of_cluster) == ["cluster-b", "cluster"]
    assert reading(READ) == {"token": read_only(accepted.token), "other-token": read_only(first.token)}
    assert await operator.reconcile(asking("monday")) == used
    operator.now = 400.0
    over = await operator.reconcile(asking("monday"))
    assert list(over.of_cluster) == ["cluster-b"]
    assert over.former_token == ""
    assert reading(READ) == {"token": read_only(accepted.token)}
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
