"""Two releases that watch the same namespaces: one serves the pipelines, the other reports it and writes nothing."""

from __future__ import annotations

import pytest

from e2e.scenarios.resources import at_home, example, patched
from e2e.scenarios.site import Site, account_of
from e2e.scenarios.test_life import quiet_reconciles

OTHER = "second"


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
def test_two_releases_do_not_fight_over_a_pipeline(site: Site, namespace: str) -> None:
    name = "contested"
    pipeline = patched(at_home(example(), site.surroundings, name=name, namespace=namespace), shards=1)
    site.install("--set", "crds.install=false", release=OTHER)
    with site.operator():
        site.apply(pipeline)
        site.wait_settled(name, namespace)
        began = site.cluster.audit.mark()
        other = site.start_operator("second-operator", release=OTHER)
        try:

            def reported() -> bool:
                events = site.cluster.get("events", "-n", namespace)["items"]
                return any(event["reason"] == "OtherOperator" for event in events)

            site.wait("the second one reports that it is one too many", reported)
            quiet_reconciles(site, other, 5)
            writes = site.cluster.audit.writes(account_of(OTHER), since=began)
            assert {request.resource for request in writes} <= {"events", "leases"}
            assert site.refused(began, OTHER) == []
        finally:
            other.stop(grace=20)
        site.wait_settled(name, namespace)
