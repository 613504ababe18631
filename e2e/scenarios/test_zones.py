"""Two operators with one zone each, and one resource applied twice: one pipeline, as over two Kubernetes clusters."""

from __future__ import annotations

import base64
import urllib.request

import pytest

from blockhouse.contract.aggregator import STATUS, StatusPage
from blockhouse.streams import StreamId
from e2e.scenarios.resources import at_home, companions, example, patched
from e2e.scenarios.site import Site
from e2e.scenarios.state import children

NAME = "wide"


def statefulsets(site: Site, namespace: str) -> set[str]:
    return {c["metadata"]["name"] for c in children(site.cluster, NAME, namespace) if c["kind"] == "StatefulSet"}


def zones_of(replicas: set[str]) -> set[str]:
    return {name.removeprefix(f"{NAME}-0-").rsplit("-", 1)[0] for name in replicas}


def owned(site: Site, namespace: str) -> list[StreamId]:
    """The streams that the zone's replicas report to own."""
    found = []
    secret = site.cluster.get("secret", f"{NAME}-internal", "-n", namespace)["data"]["token"]
    token = base64.b64decode(secret).decode()
    for replica in statefulsets(site, namespace):
        url = site.simulator.aggregator_url.replace("{namespace}", namespace).replace("{replica}", replica)
        request = urllib.request.Request(url + STATUS.path, headers={"Authorization": f"Bearer {token}"})
        with urllib.request.urlopen(request, timeout=5) as answer:
            page = StatusPage.parse(answer.read())
            found += [StreamId.parse(stream.stream) for stream in page.streams]
    return found


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
def test_two_operators_with_a_zone_each_make_one_pipeline(site: Site) -> None:
    """Namespaces stand for the Kubernetes clusters; Kafka, ZooKeeper and the names of replicas are shared."""
    places = {"dc-a": site.namespace("zone-a"), "dc-b": site.namespace("zone-b")}
    began = site.cluster.audit.mark()
    for zone, namespace in places.items():
        site.apply(*companions(namespace))
        site.install("--set", f"crds.install=false,watchNamespace={namespace},zones={{{zone}}}", release=zone)
    operators = [
        site.start_operator(f"operator-{zone}", "--zones", zone, "--namespace", namespace, release=zone)
        for zone, namespace in places.items()
    ]
    try:
        for namespace in places.values():
            resource = at_home(example(), site.surroundings, name=NAME, namespace=namespace)
            site.apply(patched(resource, shards=1, verifier={"enabled": False}))
        for namespace in places.values():
            site.wait_ready(NAME, namespace, timeout=240)
        for zone, namespace in places.items():
            assert zones_of(statefulsets(site, namespace)) == {zone}, "an operator makes its own zone's replicas only"
        streams = [stream for namespace in places.values() for stream in owned(site, namespace)]
        assert sorted(streams) == [StreamId(c, f"{NAME}-0", n) for c in ("a", "b") for n in range(4)], (
            "every stream is owned once, whichever zone its owner is in"
        )
        assert all(owned(site, namespace) for namespace in places.values()), "both zones take part"
    finally:
        for operator in operators:
            operator.kill()
    for zone in places:
        assert site.refused(began, zone) == []
    # With pipelines in them and no operator for these: that must not hang.
    site.cluster.kubectl("delete", "namespace", *places.values(), "--timeout=120s", timeout=150)
