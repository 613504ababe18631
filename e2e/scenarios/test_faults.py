"""Faults of the API server and of the operator in the middle of a rolling restart (`make e2e-faults`).

Whatever happens, no pod is restarted twice, no two of a shard are down at the same time, the API server is asked for no
more than a little over what an undisturbed restart costs, and in the end all is as desired.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from typing import ClassVar

import pytest

from e2e.chaos.clock import WallClock, library, sweep
from e2e.chaos.delay import DelayProxies
from e2e.scenarios.fleet import Bounds, Fleet
from e2e.scenarios.operator import OperatorProcess
from e2e.scenarios.site import SYSTEM, Site
from e2e.scenarios.state import templates
from e2e.scenarios.version import LATER_FIELD, LATER_VARIABLE, OURS, Version
from e2e.stack.server import Server

pytestmark = [
    pytest.mark.faults,
    pytest.mark.own_cluster("faults are done to its programs, and the audit log is the judge"),
]

UNDISTURBED = Bounds(writes=70, lists=20)
"""46 and 12 were counted."""
DOWN_SECONDS = 120.0


@pytest.fixture(scope="module")
def fleet(site: Site) -> Iterator[Fleet]:
    namespace = site.namespace("faults")
    yield Fleet.made(site, namespace)
    site.remove_namespace(namespace)


def test_an_undisturbed_restart(fleet: Fleet) -> None:
    """What the others are compared with."""
    with fleet.site.operator(), fleet.rolling(UNDISTURBED):
        pass


def test_the_api_server_is_down_for_two_minutes(fleet: Fleet) -> None:
    # An eviction that a disruption budget refuses is a write too: its status comes back later than the API server.
    with fleet.site.operator(), fleet.rolling(Bounds(writes=100, lists=60)) as roll:
        roll.wait_evicted(2)
        fleet.cluster.api.kill()
        try:
            fleet.endure(DOWN_SECONDS)
        finally:
            roll.start_api_server()


def test_the_api_server_freezes_with_every_connection_open(fleet: Fleet) -> None:
    """It accepts connections, by its kernel, and answers none."""
    with fleet.site.operator(), fleet.rolling(Bounds(writes=100, lists=30)) as roll:
        roll.wait_evicted(2)
        fleet.cluster.api.freeze()
        try:
            fleet.endure(45)
        finally:
            fleet.cluster.api.thaw()


def test_all_watches_are_cut_again_and_again(fleet: Fleet) -> None:
    site = fleet.site
    proxies = DelayProxies([fleet.cluster.api.port], 0.0)
    here, there = (f":{port}" for port in (fleet.cluster.api.port, proxies.listening[fleet.cluster.api.port]))

    class Behind(OperatorProcess):
        """An operator whose every connection to the API server goes through the proxy."""

        def prepare(self) -> list[str]:
            self.kubeconfig.write_text(self.kubeconfig.read_text().replace(here, there))
            return super().prepare()

    site.program = Behind
    try:
        with site.operator(), fleet.rolling(Bounds(writes=100, lists=60)) as roll:
            for count in range(1, 5):
                roll.wait_evicted(count)
                cut = 0
                for _ in range(3):
                    cut += proxies.cut()
                    fleet.endure(3)
                assert cut > 0, "there was no connection"
    finally:
        site.program = OperatorProcess
        proxies.close()


def test_etcd_is_slow(fleet: Fleet) -> None:
    """A request to the API server takes up to three seconds for a minute, in which a lease has to be renewed, too."""
    with fleet.site.operator(), fleet.rolling(Bounds(writes=100, lists=30)) as roll:
        roll.wait_evicted(1)
        until = time.monotonic() + 60
        while time.monotonic() < until:
            with frozen(fleet.cluster.etcd):
                fleet.endure(3)
            fleet.endure(1)


def test_the_operator_is_killed_after_each_step(fleet: Fleet) -> None:
    """As by the OOM killer: its container is started again at once, with the same identity and no memory."""
    operator = fleet.site.start_operator("oom")
    try:
        with fleet.rolling(Bounds(writes=120, lists=40)) as roll:
            for count in range(1, 5):
                roll.wait_evicted(count)
                operator.kill()
                operator.start(wait=False)
    finally:
        operator.stop(grace=20)


@pytest.mark.skipif(library() is None, reason="libfaketime is not installed")
def test_operators_with_clocks_a_quarter_of_an_hour_apart(fleet: Fleet) -> None:
    """The one that is ahead leads, and is killed in the middle: its lease is renewed far in the future."""
    site, ahead = fleet.site, 900.0
    found = library()
    assert found is not None
    clock = WallClock(site.folder / "clock", found)

    class Ahead(OperatorProcess):
        environment: ClassVar[dict[str, str]] = clock.variables

    with clock.shifted(ahead), fleet.rolling(Bounds(writes=120, lists=30)) as roll:
        site.program = Ahead
        try:
            first = site.start_operator("ahead")
        finally:
            site.program = OperatorProcess
        try:
            roll.wait_evicted(2)
            assert lease_renewed(site) - time.time() > ahead - 60, "its clock was not shifted"
            with site.operator("on-time", lead=False) as second:
                fleet.endure(20)
                assert second.state == "standing by", "the lease of another one counts, whatever its clock shows"
                first.kill()
                site.wait("the second operator leads", lambda: second.state == "leading", timeout=60)
                roll.wait_evicted(4)
                fleet.heal()
        finally:
            first.kill()
            sweep()


def test_chart_and_operator_are_upgraded_in_the_middle(fleet: Fleet, newer: Version) -> None:
    """No webhook and no conversion: the definitions change, which ends the watches, then the operator that follows
    takes over, and would create every pod in another way. It continues the restart, and begins none."""
    site, running = fleet.site, ExitStack()
    try:
        running.enter_context(site.operator("former"))
        with fleet.rolling(Bounds(writes=90, lists=30)) as roll:
            roll.wait_evicted(2)
            site.version = newer
            site.install()
            with site.operator("newer", lead=False) as later:
                running.close()
                site.wait("the newer operator leads", lambda: later.state == "leading", timeout=60)
                roll.wait_evicted(4)
                fleet.heal()
                assert LATER_FIELD in defined(site), "the chart brought no other definition"
                for name in fleet.pipelines:
                    assert all(LATER_VARIABLE in found for found in templates(site.cluster, name, fleet.namespace))
    finally:
        running.close()
        site.version = OURS
        site.install()


def defined(site: Site) -> set[str]:
    """Fields of the spec of a BlockAggregator."""
    (version,) = site.cluster.get("crd", "blockaggregators.ingest.blockhouse.dev")["spec"]["versions"]
    return set(version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"])


@contextmanager
def frozen(server: Server) -> Iterator[None]:
    server.freeze()
    try:
        yield
    finally:
        server.thaw()


def lease_renewed(site: Site) -> float:
    """When the leader renewed its lease, by its own clock: Unix time."""
    text = site.cluster.get("lease", "blockhouse-operator", "-n", SYSTEM)["spec"]["renewTime"]
    return time.mktime(time.strptime(text[:19], "%Y-%m-%dT%H:%M:%S")) - time.timezone
