"""What users add to pods, Services, accounts and volume claims; and what they may not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blockhouse_operator.api import labels
from blockhouse_operator.api.pod_containers import reserved_variable
from blockhouse_operator.api.pod_volumes import reserved_path, reserved_volume
from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.api.resource import InvalidSpec, parse_block_aggregator, parse_shard_ingest
from blockhouse_operator.desired import aggregator, shard
from blockhouse_operator.desired.spec_hash import spec_hash
from e2e.scenarios.template_changes import of_no_pod, of_pods, of_the_verifier
from tests.unit.operator.resources import ROOT, block_aggregator, pipeline

Change = tuple[str, Any]
EVERYTHING = tuple(
    (f"spec.{path.replace('__', '.')}", value)
    for path, value in {**of_pods(), **of_no_pod(), **of_the_verifier()}.items()
)


def objects(*changes: Change, path: Path = ROOT / "examples" / "two-datacenters.yaml") -> dict[str, dict[str, Any]]:
    parsed = parse_block_aggregator(block_aggregator(*changes, path=path))
    found = aggregator.shard_ingest(parsed, 0)
    first = parse_shard_ingest({**found, "metadata": {**found["metadata"], "uid": "of-the-shard"}})
    made = (*aggregator.children(parsed), *shard.children(first))
    return {f"{o['kind']} {o['metadata']['name']}": o for o in made}


def pod(*changes: Change) -> dict[str, Any]:
    found: dict[str, Any] = objects(*changes)["StatefulSet events-0-dc-a-0"]["spec"]["template"]
    return found


def hashes(*changes: Change) -> list[str]:
    spec = resolve(pipeline(*changes), 0)
    return [spec_hash(spec, replica) for replica in spec.replicas]


def test_everything_reaches_the_pods_of_replicas() -> None:
    given = of_pods()["template__pod"]
    template = pod(*EVERYTHING)
    spec = template["spec"]
    (sidecar,) = spec["initContainers"]

    assert template["metadata"]["labels"]["team"] == "ingest"
    assert template["metadata"]["labels"].items() >= pod()["metadata"]["labels"].items()
    assert labels.SPEC_HASH in template["metadata"]["annotations"]
    for field in ("priorityClassName", "hostAliases", "dnsPolicy", "dnsConfig", "enableServiceLinks"):
        assert spec[field] == given[field]
    assert spec["securityContext"] == given["securityContext"]
    assert spec["terminationGracePeriodSeconds"] == 600
    assert spec["affinity"]["nodeAffinity"] == given["affinity"]["nodeAffinity"]
    assert spec["topologySpreadConstraints"] == given["topologySpreadConstraints"]
    assert spec["volumes"][-3:] == given["volumes"]
    assert sidecar == {**given["sidecars"][0], "restartPolicy": "Always", "imagePullPolicy": "IfNotPresent"}


def test_containers_keep_what_is_theirs() -> None:
    given = of_pods()["template__clickhouseContainer"]
    for before, after in zip(pod()["spec"]["containers"], pod(*EVERYTHING)["spec"]["containers"], strict=True):
        assert after["env"] == before["env"] + given["env"]
        assert after["volumeMounts"] == before["volumeMounts"] + given["volumeMounts"]
        assert (after["securityContext"], after["imagePullPolicy"]) == (given["securityContext"], "IfNotPresent")


def test_a_selector_that_is_left_out_means_the_replicas_of_the_shard() -> None:
    mine = {"matchLabels": {labels.PIPELINE: "events", labels.SHARD: "0"}}
    term = {"topologyKey": "kubernetes.io/hostname"}
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    constraint = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
    spec = pod(
        ("spec.template.pod", {"affinity": affinity, "topologySpreadConstraints": [constraint]}),
    )["spec"]

    (found,) = spec["affinity"]["podAntiAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"]
    assert found == {**term, "labelSelector": mine}
    assert spec["topologySpreadConstraints"] == [{**constraint, "labelSelector": mine}]


def test_an_empty_security_context_leaves_the_ids_to_openshift() -> None:
    found = objects(("spec.template.pod", {"securityContext": {}}))

    for name in ("StatefulSet events-0-dc-a-0", "Deployment events-verifier"):
        spec = found[name]["spec"]["template"]["spec"]
        assert "securityContext" not in spec
        assert all(c["securityContext"]["capabilities"] == {"drop": ["ALL"]} for c in spec["containers"])


def test_a_sidecar_is_as_restricted_as_our_containers_unless_it_asks_for_else() -> None:
    sidecar = {"name": "backup", "image": "b:1", "volumeMounts": [{"name": "data", "mountPath": "/var/lib/clickhouse"}]}
    (found,) = pod(("spec.template.pod.sidecars", [sidecar]))["spec"]["initContainers"]

    assert found["securityContext"] == pod()["spec"]["containers"][0]["securityContext"]


def test_a_pod_is_never_given_less_time_than_its_programs_need() -> None:
    needed = pod()["spec"]["terminationGracePeriodSeconds"]

    assert (
        pod(("spec.template.pod.terminationGracePeriodSeconds", 1))["spec"]["terminationGracePeriodSeconds"] == needed
    )


def test_ports_of_sidecars_are_open_to_pods() -> None:
    policy = objects(*EVERYTHING)["NetworkPolicy events-0"]["spec"]["ingress"][0]

    assert {"protocol": "UDP", "port": 15001} in policy["ports"]


def test_the_verifier_has_of_the_pod_what_is_not_of_replicas() -> None:
    spec = objects(*EVERYTHING)["Deployment events-verifier"]["spec"]["template"]["spec"]

    assert spec["priorityClassName"] == "system-cluster-critical"
    assert not {"affinity", "topologySpreadConstraints", "initContainers"} & set(spec)
    mounted = {mount["name"] for mount in spec["containers"][0]["volumeMounts"]}
    assert mounted == {volume["name"] for volume in spec["volumes"]} >= {"authorities"}


def test_services_accounts_and_claims_get_theirs_without_a_restart() -> None:
    changes = [(f"spec.{path.replace('__', '.')}", value) for path, value in of_no_pod().items()]
    metadata = {"annotations": {"dns/hostname": "{replica}.{namespace}.example.net"}}
    host = ("spec.template.replicaService", {**of_no_pod()["template__replicaService"], "metadata": metadata})
    found = objects(*changes, host)

    for name in ("Service events-0", "PersistentVolumeClaim data-events-0-dc-a-0", "ServiceAccount events-replica"):
        assert found[name]["metadata"]["annotations"] == {"example.net/cost-centre": "4711"}
        assert found[name]["metadata"]["labels"]["team"] == "ingest"
    service = found["Service events-0-dc-a-0"]
    assert service["metadata"]["annotations"] == {"dns/hostname": "events-0-dc-a-0.data.example.net"}
    assert (service["spec"]["type"], service["spec"]["loadBalancerSourceRanges"]) == ("LoadBalancer", ["192.0.2.0/24"])
    assert "annotations" not in found["ServiceAccount events-verifier"]["metadata"]
    assert hashes(*changes, host) == hashes()


def test_only_what_pods_are_created_from_outdates_them() -> None:
    assert hashes(("spec.template", {"pod": {}, "clickhouseContainer": {"env": []}})) == hashes()
    assert hashes(("spec.template.verifierContainer.env", [{"name": "A", "value": "b"}])) == hashes()
    for path, value in of_pods().items():
        assert not set(hashes((f"spec.{path.replace('__', '.')}", value), *_volumes(path))) & set(hashes())
    for field, value in of_pods()["template__pod"].items():
        if field != "sidecars":
            assert not set(hashes((f"spec.template.pod.{field}", value))) & set(hashes()), field


def _volumes(path: str) -> tuple[Change, ...]:
    return () if path == "template__pod" else (("spec.template.pod.volumes", of_pods()["template__pod"]["volumes"]),)


VOLUME = {"name": "x", "emptyDir": {}}
MOUNT = {"name": "x", "mountPath": "/opt/x"}


@pytest.mark.parametrize(
    ("field", "value", "words"),
    [
        (
            "pod.metadata",
            {"labels": {"app.kubernetes.io/instance": "x"}},
            "labels: app.kubernetes.io/instance is taken",
        ),
        ("pvc.metadata", {"annotations": {"blockhouse.dev/x": "y"}}, "annotations: blockhouse.dev/x is taken"),
        ("pod.metadata", {"labels": {"not a key": "x"}}, "not a key: expected a name"),
        ("pod.volumes", [{"name": "data", "emptyDir": {}}], "volumes: data is taken"),
        ("pod.volumes", [{"name": "kafka-a", "emptyDir": {}}], "volumes: kafka-a is taken"),
        ("pod.volumes", [{"name": "x", "hostPath": {"path": "/"}}], "give exactly one of configMap"),
        ("pod.volumes", [VOLUME, VOLUME], "name must differ"),
        ("pod.sidecars", [{"name": "clickhouse", "image": "i"}], "sidecars: clickhouse is taken"),
        (
            "pod.sidecars",
            [{"name": "s", "image": "i", "ports": [{"name": "p", "containerPort": 8080}]}],
            "8080 is taken",
        ),
        ("pod.sidecars", [{"name": "s", "image": "i", "volumeMounts": [MOUNT]}], "x is not in template.pod.volumes"),
        ("clickhouseContainer.env", [{"name": "CLICKHOUSE_REPLICA", "value": "x"}], "CLICKHOUSE_REPLICA is taken"),
        ("aggregatorContainer.env", [{"name": "BLOCKHOUSE_X", "value": "x"}], "BLOCKHOUSE_X is taken"),
        ("aggregatorContainer.env", [{"name": "A", "valueFrom": {}}], "give exactly one of secretKeyRef"),
        ("aggregatorContainer.volumeMounts", [MOUNT], "aggregatorContainer: volumeMounts: x is not in"),
        ("verifierContainer.volumeMounts", [MOUNT], "verifierContainer: volumeMounts: x is not in"),
        ("clickhouseContainer.volumeMounts", [{"name": "x", "mountPath": "/var/lib"}], "/var/lib: the container has"),
        (
            "clickhouseContainer.volumeMounts",
            [{"name": "x", "mountPath": "/opt/../tmp/y"}],
            "/tmp/y: the container has",
        ),
        ("clickhouseContainer.volumeMounts", [MOUNT, {**MOUNT, "mountPath": "/opt/x/"}], "/opt/x is given twice"),
        ("queryService", {"loadBalancerSourceRanges": ["10.0.0.0/8"]}, "needs type LoadBalancer"),
        ("replicaService", {"type": "NodePort"}, "should be 'ClusterIP' or 'LoadBalancer'"),
    ],
)
def test_what_would_break_the_product_is_refused_by_name(field: str, value: Any, words: str) -> None:
    with pytest.raises(InvalidSpec) as caught:
        parse_block_aggregator(block_aggregator((f"spec.template.{field}", value)))

    (problem,) = caught.value.problems
    assert problem.field.startswith("spec.template")
    assert words in problem.message


@pytest.mark.parametrize("name", ["two-datacenters", "existing-clickhouse"])
def test_every_name_that_our_pods_use_is_reserved(name: str) -> None:
    found = objects(
        ("spec.zookeeper.ensembles.0.auth", {"username": "u", "secretRef": {"name": "s"}}),
        path=ROOT / "examples" / f"{name}.yaml",
    )
    specs = [o["spec"]["template"]["spec"] for kind, o in found.items() if kind.startswith(("Stateful", "Deploy"))]

    for spec in specs:
        assert [v["name"] for v in spec["volumes"] if not reserved_volume(v["name"])] == []
        for container in spec["containers"]:
            assert [e["name"] for e in container["env"] if not reserved_variable(e["name"])] == []
            assert [m["mountPath"] for m in container["volumeMounts"] if not reserved_path(m["mountPath"])] == []
