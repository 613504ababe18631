"""An operator of several namespaces, each with a Role of its own: one deleted, one forbidden, the rest continues."""

from __future__ import annotations

import urllib.request

import pytest

from e2e.cluster import ClusterError
from e2e.scenarios.operator import OperatorProcess
from e2e.scenarios.resources import Manifest, at_home, companions, example, patched
from e2e.scenarios.site import Site, is_ready

RELEASE = "spaces"
KEPT, DELETED, FORBIDDEN = "spaces-kept", "spaces-deleted", "spaces-forbidden"

pytestmark = pytest.mark.own_cluster("its pods are played by nodes of KWOK's")


def pipeline(site: Site, name: str, namespace: str) -> Manifest:
    made = at_home(example(), site.surroundings, name=name, namespace=namespace)
    return patched(made, shards=1, verifier={"enabled": False})


def install(site: Site) -> None:
    watched = f"watchNamespaces={{{KEPT},{DELETED},{FORBIDDEN}}}"
    site.install("--set", f"crds.install=false,{watched}", release=RELEASE)


def shards(site: Site, name: str, namespace: str) -> int:
    selector = f"ingest.blockhouse.dev/pipeline={name}"
    return len(site.cluster.get("csi", "-n", namespace, "-l", selector)["items"])


def unread(operator: OperatorProcess) -> set[str]:
    """Namespaces that the operator's metrics report."""
    with urllib.request.urlopen(f"http://127.0.0.1:{operator.port}/metrics", timeout=5) as answer:
        lines = answer.read().decode().splitlines()
    prefix = 'blockhouse_operator_namespace_unread{namespace="'
    return {line.removeprefix(prefix).split('"')[0] for line in lines if line.startswith(prefix)}


def well(operator: OperatorProcess) -> bool:
    with urllib.request.urlopen(f"http://127.0.0.1:{operator.port}/healthz", timeout=5) as answer:
        return bool(answer.status == 200)


def two_are_unreadable(site: Site, operator: OperatorProcess) -> None:
    site.cluster.kubectl("delete", "rolebinding", f"{RELEASE}-operator", "-n", FORBIDDEN)
    site.cluster.kubectl("delete", "namespace", DELETED, "--timeout=120s", timeout=150)
    site.wait("both are reported", lambda: unread(operator) == {DELETED, FORBIDDEN}, timeout=60)

    site.apply(patched(pipeline(site, "in-kept", KEPT), shards=2))
    site.wait("a change is carried out", lambda: shards(site, "in-kept", KEPT) == 2, timeout=120)
    site.apply(pipeline(site, "late", KEPT))
    stalled = site.wait_condition("late", KEPT, "Stalled", "True", "ClaimsUnknown", timeout=60)
    assert FORBIDDEN in stalled["message"]
    assert DELETED in stalled["message"]
    site.apply(patched(pipeline(site, "in-forbidden", FORBIDDEN), shards=2))
    site.wait_ready("in-kept", KEPT)
    assert shards(site, "late", KEPT) == 0, "nothing is created that an older pipeline may dispute"
    assert shards(site, "in-forbidden", FORBIDDEN) == 1, "what cannot be read stays as it is"
    assert operator.alive
    assert well(operator)
    log = operator.log.read_text()
    for namespace in (DELETED, FORBIDDEN):
        lines = [line for line in log.splitlines() if '"namespace_unread"' in line and namespace in line]
        assert len(lines) == 1, lines


def both_come_back(site: Site, operator: OperatorProcess) -> None:
    site.namespace(DELETED)
    install(site)
    site.wait("all can be read again", lambda: unread(operator) == set(), timeout=300)
    site.wait("what waited is created", lambda: shards(site, "late", KEPT) == 1, timeout=180)
    site.wait("its change is carried out", lambda: shards(site, "in-forbidden", FORBIDDEN) == 2, timeout=180)
    site.wait("it is ready", lambda: is_ready(site.cluster.get("ba", "late", "-n", KEPT)), timeout=300)


def test_a_deleted_and_a_forbidden_namespace_stop_nothing_else(site: Site) -> None:
    for namespace in (KEPT, DELETED, FORBIDDEN):
        site.namespace(namespace)
        site.apply(*companions(namespace))
    install(site)
    began = site.cluster.audit.mark()
    watched = [part for namespace in (KEPT, DELETED, FORBIDDEN) for part in ("--namespace", namespace)]
    operator = site.start_operator("spaces", *watched, release=RELEASE)
    try:
        site.apply(*(pipeline(site, f"in-{n.removeprefix('spaces-')}", n) for n in (KEPT, FORBIDDEN)))
        site.wait_ready("in-kept", KEPT)
        site.wait_ready("in-forbidden", FORBIDDEN)
        assert site.refused(began, RELEASE) == []

        two_are_unreadable(site, operator)
        both_come_back(site, operator)
        operator.terminate()
        site.wait("it ends in order", lambda: operator.exit_code == 0, timeout=60)
    except ClusterError as error:
        raise AssertionError(f"{error}\n{operator.log.read_text(errors='replace')[-6000:]}") from error
    finally:
        operator.kill()
        site.cluster.helm("uninstall", RELEASE, "--namespace", "blockhouse-system")
        site.cluster.kubectl("delete", "namespace", KEPT, DELETED, FORBIDDEN, "--wait=false")
