"""An installation of an older version, with a pipeline that runs, is upgraded, rolled back and upgraded again by helm.

    git worktree add --detach /tmp/before 7b3d688
    make e2e ARGS="-k upgrade_from" UPGRADE_FROM=/tmp/before

Chart, definitions, operator and example are of that checkout, and so is the program that plays its pods; it needs no
environment of its own. No pod may be another one before a change of the spec asks for it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from e2e.cluster import ClusterError
from e2e.scenarios.pod_history import PodHistory
from e2e.scenarios.resources import Manifest, at_home, companions, example, patched
from e2e.scenarios.site import RELEASE, SYSTEM, Site, is_ready, open_site
from e2e.scenarios.state import pods
from e2e.scenarios.test_life import quiet_reconciles
from e2e.scenarios.version import OURS, Version
from e2e.simulator import Simulator
from e2e.simulator.pods import Content, missing, texts
from e2e.stack.ports import Ports

FROM = os.environ.get("UPGRADE_FROM", "")
BEFORE = Version(Path(FROM))
pytestmark = [
    pytest.mark.own_cluster("its pods are played by nodes of KWOK's"),
    pytest.mark.skipif(not FROM, reason="UPGRADE_FROM names no checkout of the older version"),
]
NAME = "running"
REPLICAS = 8
"""2 shards of 4."""


@dataclass
class Upgrade:
    """A pipeline of the older version, with the simulator of its pods."""

    site: Site
    namespace: str
    former: Simulator
    uids: dict[str, str] = field(default_factory=dict)
    """Identities of the pods, the verifier's as well, when all of it was Ready."""
    token: str = ""
    """Of the admin APIs, when the simulator of the older version was started."""

    def pods(self) -> dict[str, str]:
        return {p["metadata"]["name"]: p["metadata"]["uid"] for p in pods(self.site.cluster, NAME, self.namespace)}

    def renewed(self) -> bool:
        """Every replica has another pod than it had."""
        former, present = (
            {name: uid for name, uid in found.items() if "verifier" not in name} for found in (self.uids, self.pods())
        )
        return former.keys() == present.keys() and not former.items() & present.items()

    def content(self, kind: str, name: str) -> Content:
        """Of a ConfigMap or a Secret. KeyError when there is none."""
        try:
            return texts(kind, self.site.cluster.get(kind.lower(), name, "-n", self.namespace))
        except ClusterError as error:
            raise KeyError(name) from error

    def wait_ready(self) -> None:
        """Ready, with every program of the older version started again since the last change of the token: programs
        read a token that is replaced within a minute, but what plays them reads it when it starts."""

        def ready() -> bool:
            token = self.content("Secret", f"{NAME}-internal").get("token", "")
            if token != self.token:
                self.former.restart()
                self.token = token
                return False
            return is_ready(self.site.cluster.get("ba", NAME, "-n", self.namespace))

        def shown() -> object:
            found = self.site.cluster.get("ba,csi", "-n", self.namespace)["items"]
            return [one.get("status", {}).get("conditions") for one in found]

        self.site.wait(f"{NAME} is Ready", ready, timeout=300, show=shown)

    def check_kept(self) -> None:
        """Every pod is the one it was, and its containers could start again at any moment."""
        assert self.pods() == self.uids
        found = pods(self.site.cluster, NAME, self.namespace)
        lacking = {pod["metadata"]["name"]: missing(pod, self.content) for pod in found}
        assert {name: what for name, what in lacking.items() if what} == {}


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A cluster of its own: definitions of ours were never there."""
    with open_site(tmp_path, version=BEFORE) as site:
        yield site


@contextmanager
def simulator_of_before(site: Site) -> Iterator[Simulator]:
    ports = Ports()
    found = Simulator(site.folder / "before", kubeconfig=site.cluster.kubeconfig, port=ports["simulator"])
    found.variables = BEFORE.variables
    found.start()
    try:
        yield found
    finally:
        found.kill()
        ports.release()


def test_a_running_pipeline_is_upgraded_and_rolled_back(site: Site) -> None:
    namespace = site.namespace("upgraded")
    site.apply(*companions(namespace))
    pipeline = at_home(example(version=BEFORE), site.surroundings, name=NAME, namespace=namespace)
    with simulator_of_before(site) as former, PodHistory.of(site.cluster.kubeconfig, namespace) as history:
        upgrade = Upgrade(site, namespace, former)
        site.simulator.elsewhere[pipeline["spec"]["aggregator"]["image"]] = f"http://127.0.0.1:{former.port}"
        site.simulator.restart()
        runs_before(upgrade, pipeline)
        is_upgraded(upgrade)
        is_rolled_back(upgrade)
        is_upgraded(upgrade)
        is_changed(upgrade, history, pipeline)


def runs_before(upgrade: Upgrade, pipeline: Manifest) -> None:
    site = upgrade.site
    with site.operator():
        site.apply(pipeline)
        site.wait_ready(NAME, upgrade.namespace)
        upgrade.uids = upgrade.pods()
        upgrade.token = upgrade.content("Secret", f"{NAME}-internal")["token"]
    assert len(upgrade.uids) == REPLICAS + 1


def is_upgraded(upgrade: Upgrade) -> None:
    """By `helm upgrade` while the former operator runs, which ours takes the lease from, as a Deployment does it."""
    site, began = upgrade.site, upgrade.site.cluster.audit.mark()
    with ExitStack() as running:
        running.enter_context(site.operator())
        site.version = OURS
        site.install()
        with site.operator(lead=False) as operator:
            running.close()
            site.wait("ours leads", lambda: operator.state == "leading")
            quiet_reconciles(site, operator, 12)
            upgrade.wait_ready()
            upgrade.check_kept()
            mark = site.cluster.audit.mark()
            quiet_reconciles(site, operator, 12)
            assert [str(request) for request in site.writes(mark)] == []
            former_programs_start_again(upgrade)
            upgrade.check_kept()
    assert site.refused(began) == []


def former_programs_start_again(upgrade: Upgrade) -> None:
    """With what our operator gives them: their containers end and start, as at a reboot of the nodes."""
    log = upgrade.former.log
    read = len(log.read_text())
    upgrade.former.restart()
    upgrade.wait_ready()
    assert "pod_would_not_start" not in log.read_text()[read:]


def is_rolled_back(upgrade: Upgrade) -> None:
    site = upgrade.site
    with site.operator():
        site.cluster.helm("rollback", RELEASE, "--namespace", SYSTEM)
    site.version = BEFORE
    with site.operator() as operator:
        quiet_reconciles(site, operator, 6)
        upgrade.wait_ready()
        upgrade.check_kept()


def is_changed(upgrade: Upgrade, history: PodHistory, pipeline: Manifest) -> None:
    """To the image of this version: every replica is restarted once, one of a shard at a time."""
    site, namespace = upgrade.site, upgrade.namespace
    began = site.cluster.audit.mark()
    assert not any(history.most_down().values()), "replicas were down before"
    with site.operator():
        site.apply(patched(pipeline, aggregator__image="blockhouse/aggregator:later"))
        site.wait(
            "every pod is another one",
            upgrade.renewed,
            timeout=600,
            show=lambda: site.cluster.get("csi", "-n", namespace)["items"],
        )
        site.wait_settled(NAME, namespace)
    assert [shard for shard, down in history.most_down().items() if len(down) != 1] == []
    assert site.refused(began) == []
