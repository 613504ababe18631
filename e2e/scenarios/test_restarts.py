"""Operators that are killed, frozen and outrun: what becomes of the cluster does not depend on it."""

from __future__ import annotations

import os
import random
import signal
from contextlib import suppress

from e2e.cluster import ClusterError
from e2e.scenarios.resources import Manifest, at_home, example, patched
from e2e.scenarios.site import Site
from e2e.scenarios.state import essence
from e2e.stack.process import wait_until

KILLS = 6


def seeded() -> random.Random:
    seed = int(os.environ.get("SEED") or random.SystemRandom().randrange(1 << 32))
    print(f"SEED={seed}")  # noqa: T201  a failing run is repeated with it
    return random.Random(seed)


def pipeline(site: Site, name: str, namespace: str) -> Manifest:
    return patched(at_home(example(), site.surroundings, name=name, namespace=namespace), shards=1)


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
    for number in range(KILLS):
        if number == KILLS // 2:
            site.apply(patched(rough, **changed))
        operator = site.start_operator()
        mark, writes = site.cluster.audit.mark(), chance.randint(1, 12)
        wait_until(lambda mark=mark, writes=writes: len(site.writes(mark)) >= writes, timeout=20, interval=0.2)  # type: ignore[misc]
        operator.kill()
    with site.operator():
        site.wait_settled("rough", namespace)
        rested(site)
        assert essence(site.cluster, "rough", namespace) == essence(site.cluster, "smooth", namespace)
    assert site.refused(began) == []


def rested(site: Site) -> None:
    """Waits until no operator has written anything for a few resyncs' time."""
    last = site.cluster.audit.mark()

    def quiet() -> bool:
        nonlocal last
        reads = [r for r in site.cluster.audit.requests(since=last) if r.user.endswith("operator") and not r.writes]
        if site.writes(last):
            last = site.cluster.audit.mark()
            return False
        return len(reads) > 200

    site.wait("the operator comes to rest", quiet, timeout=180)


def test_a_frozen_leader_writes_nothing_when_it_thaws(site: Site, namespace: str) -> None:
    first = site.start_operator("first")
    try:
        site.apply(pipeline(site, "frozen", namespace))
        site.wait_ready("frozen", namespace)
        first.freeze()
        second = site.start_operator("second", lead=False)
        try:
            site.wait("the second operator leads", lambda: second.state == "leading", timeout=90)
            site.apply(patched(pipeline(site, "frozen", namespace), blocks={"maxBytes": "2Mi"}))
            site.wait_ready("frozen", namespace)
            mark = site.cluster.audit.mark()
            os.kill(first.pid or 0, signal.SIGCONT)
            site.wait("the former leader ends by itself", lambda: not first.alive, timeout=90)
            assert first.exit_code == 75
            agents = {request.agent for request in site.writes(mark)}
            holders = site.cluster.get("lease", "blockhouse-operator", "-n", "blockhouse-system")["spec"]
            assert holders["holderIdentity"].startswith("second"), holders
            assert len(agents) <= 1, f"two operators wrote: {agents}"
        finally:
            second.kill()
    finally:
        first.kill()


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
    # What only the operator can know: DDL that nobody can read.
    broken = patched(valid, tables=[{"name": "db.broken", "ddlFrom": {"configMapKeyRef": {"name": "no", "key": "x"}}}])
    with site.operator():
        site.apply(broken)
        found = site.wait_condition("judged", namespace, "Ready", "False", "SecretMissing")
        assert "no" in found["message"]
        site.cluster.kubectl("delete", "ba", "judged", "-n", namespace, "--timeout=60s")
    with suppress(ClusterError):
        site.cluster.kubectl("get", "ba", "judged", "-n", namespace)
        raise AssertionError("it is still there")
