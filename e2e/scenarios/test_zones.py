"""Two operators with one zone each, and one resource applied twice: one pipeline, as over two Kubernetes clusters."""

from __future__ import annotations

import base64
import urllib.request
from xml.etree.ElementTree import fromstring

import pytest

from blockhouse.contract.aggregator import STATUS, StatusPage
from blockhouse.streams import StreamId
from e2e.scenarios.resources import Manifest, at_home, example, patched, secret
from e2e.scenarios.site import Site
from e2e.scenarios.state import children, pods

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


def wide(site: Site, namespace: str) -> list[Manifest]:
    """The example's pipeline and its Secrets, in one of its places."""
    pipeline = at_home(example("two-kubernetes"), site.surroundings, name=NAME, namespace=namespace)
    secrets = [secret(f"clickhouse-{use}", namespace, password="shared") for use in ("cluster", "interserver")]
    return [*secrets, patched(pipeline, verifier={"enabled": False})]


def check_addresses(site: Site, zone: str, namespace: str) -> None:
    """All replicas are reached by the zones' templates, from wherever: this zone's announce such a name themselves."""
    hosts = {f"{NAME}-0-{z}-{n}.{namespace}.{z}.example.net" for z in ("dc-a", "dc-b") for n in (0, 1)}
    text = site.cluster.get("secret", f"{NAME}-clickhouse", "-n", namespace)["data"]["remote_servers.xml"]
    servers = fromstring(base64.b64decode(text).decode())
    assert {host.text for host in servers.findall(".//replica/host")} == hosts
    own = {host for host in hosts if f".{zone}." in host}
    announced = set()
    for pod in pods(site.cluster, NAME, namespace):
        containers = {container["name"]: container for container in pod["spec"]["containers"]}
        announced |= {v["value"] for v in containers["clickhouse"]["env"] if v.get("value", "").endswith("example.net")}
    assert announced == own


def check_open_to_the_other(site: Site, namespace: str) -> None:
    """Peers come with addresses that are not known here, so the port of replication is open, by a password."""
    rules = site.cluster.get("networkpolicy", f"{NAME}-0", "-n", namespace)["spec"]["ingress"]
    (replication,) = [rule for rule in rules if {"protocol": "TCP", "port": 9009} in rule["ports"]]
    assert "from" not in replication
    config = site.cluster.get("configmap", "-n", namespace, "-l", f"ingest.blockhouse.dev/pipeline={NAME}")["items"]
    (server,) = [each["data"]["config.xml"] for each in config if "config.xml" in each.get("data", {})]
    assert fromstring(server).find("interserver_http_credentials/password") is not None
    assert "open to other networks" not in site.condition("ba", NAME, namespace, "Ready")["message"]


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
def test_two_operators_with_a_zone_each_make_one_pipeline(site: Site) -> None:
    """Namespaces stand for the Kubernetes clusters; Kafka, ZooKeeper and the names of replicas are shared. Zones have a
    `hostTemplate`, by which replicas of the other one are reached."""
    places = {"dc-a": site.namespace("zone-a"), "dc-b": site.namespace("zone-b")}
    began = site.cluster.audit.mark()
    for zone, namespace in places.items():
        site.install("--set", f"crds.install=false,watchNamespace={namespace},zones={{{zone}}}", release=zone)
    operators = [
        site.start_operator(f"operator-{zone}", "--zones", zone, "--namespace", namespace, release=zone)
        for zone, namespace in places.items()
    ]
    try:
        for namespace in places.values():
            site.apply(*wide(site, namespace))
        for namespace in places.values():
            site.wait_ready(NAME, namespace, timeout=240)
        for zone, namespace in places.items():
            assert zones_of(statefulsets(site, namespace)) == {zone}, "an operator makes its own zone's replicas only"
        streams = [stream for namespace in places.values() for stream in owned(site, namespace)]
        assert sorted(streams) == [StreamId(c, f"{NAME}-0", n) for c in ("a", "b") for n in range(4)], (
            "every stream is owned once, whichever zone its owner is in"
        )
        assert all(owned(site, namespace) for namespace in places.values()), "both zones take part"
        for zone, namespace in places.items():
            check_addresses(site, zone, namespace)
            check_open_to_the_other(site, namespace)
    finally:
        for operator in operators:
            operator.kill()
    for zone in places:
        assert site.refused(began, zone) == []
    # With pipelines in them and no operator for these: that must not hang.
    site.cluster.kubectl("delete", "namespace", *places.values(), "--timeout=120s", timeout=150)
