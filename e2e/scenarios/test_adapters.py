"""The operator's client against a real API server: what it asks, what it leaves alone, what it may not do."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any

import pytest

from blockhouse.errors import Retryable
from blockhouse_operator.adapters.connection import connect
from blockhouse_operator.adapters.fence import Fence, LeadershipLost, OpenFence
from blockhouse_operator.adapters.figures import Figures
from blockhouse_operator.adapters.kinds import CONFIG_MAP, POD
from blockhouse_operator.adapters.kubernetes import Kubernetes
from blockhouse_operator.adapters.lease import FencedLock, lead
from blockhouse_operator.adapters.store import Store
from blockhouse_operator.adapters.watch import Watch
from blockhouse_operator.api.labels import CHILD
from blockhouse_operator.reconcile.children import apply_children, list_children, prune_children
from e2e.scenarios.resources import Manifest
from e2e.scenarios.site import Site


@dataclass(frozen=True)
class Owner:
    """An object that is there: what belongs to one that is not is collected at once."""

    name: str
    uid: str


@pytest.fixture
def owner(site: Site, namespace: str) -> Owner:
    return make_owner(site, namespace, "owner")


def make_owner(site: Site, namespace: str, name: str) -> Owner:
    site.apply({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name, "namespace": namespace}})
    return Owner(name, site.cluster.get("configmap", name, "-n", namespace)["metadata"]["uid"])


@pytest.fixture
def figures() -> Figures:
    return Figures()


@pytest.fixture
async def kubernetes(site: Site, figures: Figures) -> AsyncIterator[Kubernetes]:
    api = await connect(str(site.cluster.kubeconfig))
    yield Kubernetes(api, OpenFence(), figures)
    await api.close()  # type: ignore[no-untyped-call]


def config_map(owner: Owner, namespace: str, name: str = "ours", **data: str) -> Manifest:
    reference = {"apiVersion": "v1", "kind": "ConfigMap", "name": owner.name, "uid": owner.uid}
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": namespace,
            "labels": dict(CHILD),
            "ownerReferences": [reference | {"controller": True, "blockOwnerDeletion": False}],
        },
        "data": data,
    }


def pod(namespace: str) -> Manifest:
    """One that the namespace admits: it enforces the standard `restricted`."""
    allowed = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "pod", "namespace": namespace},
        "spec": {
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [{"name": "pod", "image": "none", "securityContext": allowed}],
        },
    }


async def found(kubernetes: Kubernetes, namespace: str) -> dict[tuple[str, str], Any]:
    return await list_children(kubernetes, [CONFIG_MAP], namespace, CHILD)


@pytest.mark.own_cluster("the audit log is the judge")
async def test_what_is_as_desired_is_not_written_again(
    site: Site, namespace: str, kubernetes: Kubernetes, owner: Owner
) -> None:
    desired = config_map(owner, namespace, a="1", b="2")
    made = await apply_children(kubernetes, [desired], {}, owner.uid)
    assert made.written == ["ConfigMap ours"]
    mark = site.cluster.audit.mark()
    again = await apply_children(kubernetes, [desired], await found(kubernetes, namespace), owner.uid)
    assert again.written == []
    assert [str(r) for r in site.cluster.audit.requests(since=mark) if r.writes and r.name == "ours"] == []


async def test_requests_and_events_are_counted(
    namespace: str, kubernetes: Kubernetes, owner: Owner, figures: Figures
) -> None:
    def counted(metric: str, **labels: str) -> float:
        return figures.registry.get_sample_value(f"blockhouse_operator_{metric}_total", labels) or 0.0

    await apply_children(kubernetes, [config_map(owner, namespace, a="1")], {}, owner.uid)
    assert counted("api_requests", verb="PATCH", code="201") == 1

    missing = counted("api_requests", verb="GET", code="404")
    assert await kubernetes.get(CONFIG_MAP, namespace, "absent") is None
    assert counted("api_requests", verb="GET", code="404") == missing + 1

    live = await kubernetes.get(CONFIG_MAP, namespace, owner.name)
    assert live is not None
    about = {"apiVersion": "v1", "kind": "ConfigMap", **live}
    await kubernetes.emit(about, warning=True, reason="Counted", message="once", at="2026-01-01T00:00:00Z")
    assert counted("events", kind="ConfigMap", type="Warning", reason="Counted") == 1
    assert counted("api_requests", verb="POST", code="201") == 1


async def test_a_field_that_is_no_longer_desired_goes_and_those_of_others_stay(
    site: Site, namespace: str, kubernetes: Kubernetes, owner: Owner
) -> None:
    await apply_children(kubernetes, [config_map(owner, namespace, a="1", b="2")], {}, owner.uid)
    site.cluster.kubectl("label", "configmap", "ours", "-n", namespace, "theirs=yes")
    site.cluster.kubectl("patch", "configmap", "ours", "-n", namespace, "--type=merge", "-p", '{"data":{"a":"9"}}')
    await apply_children(
        kubernetes, [config_map(owner, namespace, a="1")], await found(kubernetes, namespace), owner.uid
    )

    live = site.cluster.get("configmap", "ours", "-n", namespace)
    assert live["data"] == {"a": "1"}
    assert live["metadata"]["labels"]["theirs"] == "yes"


async def test_an_orphan_of_ours_is_adopted_and_what_is_anothers_is_left_alone(
    site: Site, namespace: str, kubernetes: Kubernetes, owner: Owner
) -> None:
    orphan = config_map(owner, namespace, "orphan", a="1")
    del orphan["metadata"]["ownerReferences"]
    stranger = config_map(owner, namespace, "stranger", a="theirs")
    stranger["metadata"] = {"name": "stranger", "namespace": namespace}
    site.apply(orphan, stranger)
    desired = [config_map(owner, namespace, "orphan", a="1"), config_map(owner, namespace, "stranger", a="ours")]
    applied = await apply_children(kubernetes, desired, await found(kubernetes, namespace), owner.uid)

    assert applied.written == ["ConfigMap orphan"]
    assert len(applied.taken) == 1
    assert "stranger was not created by a Blockhouse operator" in applied.taken[0]
    assert site.cluster.get("configmap", "stranger", "-n", namespace)["data"] == {"a": "theirs"}


async def test_one_refused_object_does_not_keep_the_others_from_being_written(
    namespace: str, kubernetes: Kubernetes, owner: Owner
) -> None:
    wrong = config_map(owner, namespace, "wrong", **{"not a key": "x"})
    applied = await apply_children(kubernetes, [wrong, config_map(owner, namespace, "right")], {}, owner.uid)

    assert applied.written == ["ConfigMap right"]
    assert "ConfigMap wrong" in applied.refused[0]


async def test_only_what_we_own_is_pruned(site: Site, namespace: str, kubernetes: Kubernetes, owner: Owner) -> None:
    other = make_owner(site, namespace, "other")
    await apply_children(
        kubernetes, [config_map(owner, namespace, "old"), config_map(owner, namespace, "kept")], {}, owner.uid
    )
    await apply_children(kubernetes, [config_map(other, namespace, "others")], {}, other.uid)
    live = await found(kubernetes, namespace)
    gone = await prune_children(kubernetes, [], live, owner.uid, keep=["kept"])

    assert gone == ["ConfigMap old"]
    await prune_children(kubernetes, [], live, owner.uid, keep=["kept"])


@pytest.mark.own_cluster("the audit log is the judge")
async def test_long_lists_come_page_by_page(site: Site, namespace: str, kubernetes: Kubernetes, owner: Owner) -> None:
    site.apply(*(config_map(owner, namespace, f"c{number}") for number in range(520)))
    mark = site.cluster.audit.mark()
    listed = await kubernetes.list(CONFIG_MAP, namespace, CHILD)

    assert len(listed) == 520
    assert all(item["kind"] == "ConfigMap" for item in listed)
    pages = [r for r in site.cluster.audit.requests(since=mark) if r.verb == "list" and r.namespace == namespace]
    assert len(pages) >= 3


async def test_a_pod_that_changed_since_it_was_seen_is_not_evicted(
    site: Site, namespace: str, kubernetes: Kubernetes
) -> None:
    site.apply(pod(namespace))
    seen = await kubernetes.get(POD, namespace, "pod")
    assert seen is not None
    site.cluster.kubectl("label", "pod", "pod", "-n", namespace, "changed=yes")
    with pytest.raises(Retryable):
        await kubernetes.evict(seen, why="test")
    assert site.cluster.get("pod", "pod", "-n", namespace)["metadata"]["uid"] == seen["metadata"]["uid"]


async def test_a_watch_reports_ours_and_nothing_else(site: Site, namespace: str, owner: Owner) -> None:
    api = await connect(str(site.cluster.kubeconfig))
    seen: list[str] = []
    watch = Watch(api, Store(CONFIG_MAP, namespace, CHILD, asyncio.get_running_loop().time))
    task = asyncio.create_task(watch.run(lambda _, item: seen.append(item["metadata"]["name"])))
    try:
        stranger = config_map(owner, namespace, "stranger")
        stranger["metadata"] = {"name": "stranger", "namespace": namespace}
        await asyncio.to_thread(site.apply, stranger, config_map(owner, namespace, "ours"))
        await eventually(lambda: "ours" in seen)
        await asyncio.to_thread(site.cluster.kubectl, "delete", "configmap", "ours", "-n", namespace)
        await eventually(lambda: seen.count("ours") >= 2)
        assert "stranger" not in seen
        assert watch.store.list(namespace, CHILD) == []
    finally:
        task.cancel()
        await api.close()  # type: ignore[no-untyped-call]


async def test_of_two_candidates_one_leads_and_the_other_follows_when_it_ends(site: Site, namespace: str) -> None:
    first = await candidate(site, namespace, "first")
    await eventually(first.leads)
    second = await candidate(site, namespace, "second")
    await asyncio.sleep(0)
    assert not second.leads()
    await first.end()
    await eventually(second.leads)
    assert not first.leads(), "who gave the Lease up writes no more"
    await second.end()


async def test_a_leader_whose_lease_is_taken_ends_and_writes_nothing_more(
    site: Site, namespace: str, owner: Owner
) -> None:
    leader = await candidate(site, namespace, "leader")
    await eventually(leader.leads)
    takeover = '{"spec":{"holderIdentity":"usurper","renewTime":"2999-01-01T00:00:00.000000Z"}}'
    await asyncio.to_thread(
        site.cluster.kubectl, "patch", "lease", "lock", "-n", namespace, "--type=merge", "-p", takeover
    )
    await asyncio.wait({leader.task}, timeout=60)
    assert leader.task.done()
    with pytest.raises(LeadershipLost):
        await Kubernetes(leader.api, leader.fence, Figures()).apply(config_map(owner, namespace, "late"), None)


class Candidate:
    """Takes part in the election of one Lease."""

    def __init__(self, api: Any, fence: Fence, task: asyncio.Task[None]) -> None:
        self.api, self.fence, self.task = api, fence, task

    def leads(self) -> bool:
        return self.fence.open

    async def end(self) -> None:
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self.api.close()


async def candidate(site: Site, namespace: str, identity: str) -> Candidate:
    api = await connect(str(site.cluster.kubeconfig))
    fence = Fence(10)

    async def work() -> None:
        await asyncio.Event().wait()

    task = asyncio.create_task(lead(FencedLock("lock", namespace, identity, api, fence), fence, work))
    return Candidate(api, fence, task)


async def eventually(condition: Callable[[], bool], timeout: float = 60.0) -> None:
    async with asyncio.timeout(timeout):
        while not condition():
            await asyncio.sleep(0.1)
