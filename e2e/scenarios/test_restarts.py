"""Operators that are killed, frozen and outrun: what becomes of the cluster does not depend on it."""

from __future__ import annotations

import os
import random
from contextlib import suppress

import pytest

from e2e.cluster import ClusterError
from e2e.scenarios.resources import Manifest, at_home, example, patched
from e2e.scenarios.site import SYSTEM, Site
from e2e.scenarios.state import essence
from e2e.stack.process import wait_until

KILLS = 6
MOST_WRITES = 20
"""Of an operator before it is killed. Making a pipeline of one shard takes about 50, changing it 70."""


def seeded() -> random.Random:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"SEED={seed}")  # noqa: T201  a failing run is repeated with it
    return random.Random(seed)


def pipeline(site: Site, name: str, namespace: str) -> Manifest:
    return patched(at_home(example(), site.surroundings, name=name, namespace=namespace), shards=1)


@pytest.mark.long
@pytest.mark.own_cluster("the audit log is the judge")
@pytest.mark.core
def test_an_operator_killed_anywhere_leads_to_the_same_end(site: Site, namespace: str) -> None:
    """Killed after a random number of its own writes, again and again, while it makes and changes a pipeline."""
    chance = seeded()
    smooth = pipeline(site, "smooth", namespace)
    changed = {"kafka__topic__partitions": 6, "blocks": {"maxBytes": "4Mi"}}
    with site.operator():
        site.apply(smooth)
        site.wait_settled("smooth", namespace)
        site.apply(patched(smooth, **changed))
        site.wait_settled("smooth", namespace)
    rough = pipeline(site, "rough", namespace)
    began = site.cluster.audit.mark()
    site.apply(rough)
    at_work = 0
    for number in range(KILLS):
        if number == KILLS // 2:
            site.apply(patched(rough, **changed))
        mark, writes = site.cluster.audit.mark(), chance.randint(1, MOST_WRITES)
        operator = site.start_operator()
        at_work += wait_until(lambda: len(site.writes(mark)) >= writes, timeout=30, interval=0.1)  # noqa: B023
        operator.kill()
        # It is dead for certain: the next leader need not wait until its lease has expired.
        site.cluster.kubectl("delete", "lease", "blockhouse-operator", "-n", SYSTEM)
    assert at_work >= KILLS // 2, f"only {at_work} of {KILLS} operators were killed before they had finished"
    with site.operator():
        site.wait_settled("rough", namespace)
        rested(site)
        assert essence(site.cluster, "rough", namespace) == essence(site.cluster, "smooth", namespace)
    assert site.refused(began) == []


def rested(site: Site, *, reads: int = 200) -> None:
    """Waits until operators have read so often since they wrote anything: through a few resyncs."""
    last = site.cluster.audit.mark()

    def quiet() -> bool:
        nonlocal last
        read = [r for r in site.cluster.audit.requests(since=last) if r.user.endswith("operator") and not r.writes]
        if site.writes(last):
            last = site.cluster.audit.mark()
            return False
        return len(read) > reads

    site.wait("the operator comes to rest", quiet, timeout=300)


@pytest.mark.long
@pytest.mark.own_cluster("the audit log is the judge")
@pytest.mark.core
def test_a_frozen_leader_writes_nothing_when_it_thaws(site: Site, namespace: str) -> None:
    """It thaws when there is something to repair and no other does it: only its lapsed lease can hold it back."""
    began = site.cluster.audit.mark()
    first = site.start_operator("first")
    try:
        site.apply(pipeline(site, "frozen", namespace))
        site.wait_ready("frozen", namespace)
        rested(site, reads=40)  # no lease takes back a request that is on its way to the server
        first.freeze()
        assert written_by("first", site, began), "the judge must know it by its user agent"
        with site.operator("second", lead=False) as second:
            site.wait("the second operator leads", lambda: second.state == "leading", timeout=180)
            site.apply(patched(pipeline(site, "frozen", namespace), blocks={"maxBytes": "2Mi"}))
            site.wait_settled("frozen", namespace)
            second.kill()  # its lease stays
        assert written_by("second", site, began)
        site.cluster.kubectl("delete", "service", "frozen-0-dc-a-0", "-n", namespace)
        mark = site.cluster.audit.mark()
        first.thaw()
        site.wait("the former leader ends by itself", lambda: not first.alive, timeout=180)
        assert first.exit_code == 75
        assert written_by("first", site, mark) == []
        lease = site.cluster.get("lease", "blockhouse-operator", "-n", SYSTEM)["spec"]
        assert lease["holderIdentity"] == "second", lease
    finally:
        first.kill()
    with site.operator("third"):
        repaired = lambda: "frozen-0-dc-a-0" in site.cluster.kubectl("get", "services", "-n", namespace)  # noqa: E731
        site.wait("an operator that leads repairs what the former one left", repaired)


def written_by(identity: str, site: Site, since: int) -> list[str]:
    """Writes of one operator; they share a service account, and differ in the user agent."""
    return [str(request) for request in site.writes(since) if f"({identity})" in request.agent]


@pytest.mark.core
def test_invalid_resources_are_refused_or_explained_and_can_be_deleted(site: Site, namespace: str) -> None:
    valid = pipeline(site, "judged", namespace)
    for change, complaint in (
        ({"quorum": 9}, "quorum"),
        ({"kafka__topic__config": {"cleanup.policy": "compact"}}, "compact"),
        ({"clickhouse": {"cluster": "x"}}, "managed"),
        ({"zookeeper": {"ensembles": []}}, "ensembles"),
    ):
        message = ""
        try:
            site.apply(patched(valid, **change))
        except ClusterError as error:
            message = str(error)
        assert complaint in message, f"{change}: {message or 'it was taken'}"
    # What only the operator can know: DDL that cannot be read.
    broken = patched(valid, tables=[{"name": "db.broken", "ddlFrom": {"configMapKeyRef": {"name": "no", "key": "x"}}}])
    with site.operator():
        site.apply(broken)
        found = site.wait_condition("judged", namespace, "Ready", "False", "SecretMissing")
        assert "no" in found["message"]
        site.cluster.kubectl("delete", "ba", "judged", "-n", namespace, "--timeout=110s")
    with suppress(ClusterError):
        site.cluster.kubectl("get", "ba", "judged", "-n", namespace)
        raise AssertionError("it is still there")
