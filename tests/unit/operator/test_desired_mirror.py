"""What a mirror becomes in Kubernetes, whatever the golden file contains."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest

from blockhouse.config.load import parse_as
from blockhouse.config.mirror import MirrorConfig
from blockhouse_operator.api import labels
from blockhouse_operator.api.resource import InvalidSpec
from blockhouse_operator.desired import settings
from blockhouse_operator.desired.mirror import children, read_secret, secrets_digest, spec_hash, token_secret
from tests.unit.operator.mirrors import kafka_mirror, mirror
from tests.unit.operator.resources import ROOT

Objects = dict[str, dict[str, Any]]


def objects(*changes: tuple[str, Any], secrets: str = "s") -> Objects:
    return {found["kind"]: found for found in children(mirror(*changes), secrets)}


def pod(*changes: tuple[str, Any], secrets: str = "s") -> dict[str, Any]:
    found: dict[str, Any] = objects(*changes, secrets=secrets)["Deployment"]["spec"]["template"]
    return found


def test_the_file_is_what_the_mirror_reads() -> None:
    config = parse_as(MirrorConfig, objects(("spec.load.tolerance", "25%"))["ConfigMap"]["data"]["mirror.yaml"])

    assert config == settings.mirror(mirror(("spec.load.tolerance", "25%")))
    assert (config.group, config.load.utilization, config.load.tolerance) == ("km-east", 0.7, 0.25)
    assert config.topics.rename.target_of("events-1") == "east.events-1"
    assert config.admin.host == "0.0.0.0"
    assert config.admin.token is not None


def test_the_former_pod_is_gone_before_the_next_one_is_created() -> None:
    """Two drivers of one mirror take the positions from each other."""
    spec = objects()["Deployment"]["spec"]

    assert (spec["replicas"], spec["strategy"]) == (1, {"type": "Recreate"})


def test_a_suspended_mirror_has_no_pod_and_keeps_the_rest() -> None:
    suspended, running = objects(("spec.suspend", True)), objects()

    assert suspended["Deployment"]["spec"]["replicas"] == 0
    assert suspended.keys() == running.keys()
    assert suspended["Deployment"]["spec"]["template"] == running["Deployment"]["spec"]["template"]


def test_the_pod_has_no_rights_no_root_and_writes_only_into_volumes() -> None:
    found, account = pod()["spec"], objects()["ServiceAccount"]

    assert account["metadata"]["name"] == found["serviceAccountName"]
    assert account["automountServiceAccountToken"] is found["automountServiceAccountToken"] is False
    assert found["securityContext"]["runAsNonRoot"] is True
    assert found["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = found["containers"]
    assert container["securityContext"] == {
        "readOnlyRootFilesystem": True,
        "allowPrivilegeEscalation": False,
        "capabilities": {"drop": ["ALL"]},
    }
    assert {mount["name"] for mount in container["volumeMounts"]} == {volume["name"] for volume in found["volumes"]}


def test_every_file_that_the_settings_name_is_mounted_there() -> None:
    found = pod()["spec"]
    mounts = {mount["name"]: mount["mountPath"] for mount in found["containers"][0]["volumeMounts"]}
    there = set()
    for volume in found["volumes"]:
        sources = [volume["secret"]] if "secret" in volume else []
        sources += [source["secret"] for source in volume.get("projected", {}).get("sources", ())]
        there |= {f"{mounts[volume['name']]}/{item['path']}" for source in sources for item in source["items"]}
    text = objects()["ConfigMap"]["data"]["mirror.yaml"]

    named = {line.split(": ")[1] for line in text.splitlines() if "ile: /" in line}

    assert len(named) == 6
    assert named <= there


def test_everything_belongs_to_the_mirror_and_is_found_by_its_label() -> None:
    made = [*children(mirror(), "s"), token_secret(mirror(), "t"), read_secret(mirror(), "t")]

    assert [found["kind"] for found in made if not found["metadata"]["ownerReferences"][0]["controller"]] == []
    assert {found["metadata"]["labels"][labels.MIRROR] for found in made} == {"east"}
    assert {found["metadata"]["name"] for found in made[:-1]} == {"east-mirror"}
    assert made[-1]["metadata"]["name"] == "east-mirror-read"


def test_no_secret_is_in_any_manifest() -> None:
    assert '"kind": "Secret"' not in json.dumps(list(objects().values()))


def test_what_restarts_the_pod() -> None:
    before = pod()

    assert pod(("spec.topics.include", ["other"])) != before
    assert pod(secrets="other") != before
    assert pod(("spec.image", "mine:2")) != before
    for change in (("spec.suspend", True), ("spec.networkPolicy.enabled", False)):
        assert pod(change) == before, change
    # a hash of the spec, not of what an operator of some version makes of it
    assert spec_hash(mirror(("spec.image", "mine:2"))) == spec_hash(mirror())
    assert spec_hash(mirror(("spec.delivery", "EffectivelyOnce"))) == spec_hash(mirror(("spec.delivery", ...)))


def test_a_digest_of_secrets_changes_with_each_of_them_and_with_the_token() -> None:
    contents = {"login/password": "a", "ca/ca.crt": "b"}

    assert secrets_digest("t", contents) == secrets_digest("t", dict(reversed(contents.items())))
    others = [secrets_digest("t", contents | {"login/password": "c"}), secrets_digest("u", contents)]
    assert secrets_digest("t", contents) not in others


def test_only_the_admin_api_is_reached_and_only_from_pods() -> None:
    policy = objects()["NetworkPolicy"]["spec"]

    assert policy["policyTypes"] == ["Ingress"]
    assert policy["ingress"] == [{"from": [{"namespaceSelector": {}}], "ports": [{"protocol": "TCP", "port": 8080}]}]
    assert "NetworkPolicy" not in objects(("spec.networkPolicy.enabled", False))


def test_a_template_adds_to_the_objects() -> None:
    sidecar = {"name": "proxy", "image": "p:1", "ports": [{"name": "p", "containerPort": 9999}]}
    changes = (
        ("spec.template.pod.metadata.labels", {"team": "data"}),
        ("spec.template.pod.sidecars", [sidecar]),
        ("spec.template.container.env", [{"name": "A", "value": "b"}]),
        ("spec.template.service.metadata.annotations", {"about": "{namespace}"}),
        ("spec.template.serviceAccount.metadata.annotations", {"role": "r"}),
        ("spec.nodeSelector", {"disk": "fast"}),
    )
    found, template = objects(*changes), pod(*changes)

    assert template["metadata"]["labels"]["team"] == "data"
    assert [each["name"] for each in template["spec"]["initContainers"]] == ["proxy"]
    assert {"name": "A", "value": "b"} in template["spec"]["containers"][0]["env"]
    assert template["spec"]["nodeSelector"] == {"disk": "fast"}
    assert found["Service"]["metadata"]["annotations"] == {"about": "data"}
    assert found["ServiceAccount"]["metadata"]["annotations"] == {"role": "r"}
    assert found["NetworkPolicy"]["spec"]["ingress"][0]["ports"][1] == {"protocol": "TCP", "port": 9999}


PODS = {"spark.kubernetes.container.image": "i", "spark.executor.instances": "2"}


def faults(*changes: tuple[str, Any]) -> Iterator[tuple[str, str]]:
    with pytest.raises(InvalidSpec) as caught:
        settings.mirror(mirror(*changes))
    return ((problem.field, problem.message) for problem in caught.value.problems)


@pytest.mark.parametrize(
    ("change", "field", "words"),
    [
        (("metadata.name", "0east"), "metadata.name", "a letter, then letters"),
        (("metadata.name", "e" * 33), "metadata.name", "at most 32"),
        (("spec.target.name", "east"), "spec", "one name"),
        (("spec.target.bootstrapServers", "kafka-east-0:9093"), "spec", "share the server kafka-east-0:9093"),
        (("spec.source.bootstrapServers", "kafka://east"), "spec.source.bootstrapServers", "is not host:port"),
        (("spec.topics.include", ["events-("]), "spec.topics.include[0]", "is no regular expression"),
        (("spec.delivery", "ExactlyOnce"), "spec.delivery", "is not there yet"),
        (("spec.load.minTasks", 9), "spec.load", "minTasks 9 is above maxTasks 8"),
        (("spec.load.utilization", "0.7"), "spec.load.utilization", "match pattern"),
        (("spec.load.utilization", "101%"), "spec.load", "expected from 1% to 100%"),
        (("spec.rebalance.quietHours", ["nights"]), "spec.rebalance.quietHours[0]", "is not like"),
        (("spec.targetTopics.sync", ["message.timestamp.type"]), "spec.targetTopics", "cannot be copied"),
        (("spec.spark", {"master": "k8s://https://k"}), "spec.spark", "starts executors as pods"),
        (("spec.spark", {"master": "k8s://https://k", "conf": PODS}), "spec", "do not reach gate.host 127.0.0.1"),
        (("spec.image", ...), "spec.image", "is required"),
        (("spec.template.pod.sidecars", [{"name": "mirror", "image": "a"}]), "spec.template", "taken by the operator"),
    ],
)
def test_a_fault_is_named_by_its_field(change: tuple[str, Any], field: str, words: str) -> None:
    ((found, message),) = faults(change)

    assert words in message
    assert found == field


def test_the_chart_may_do_what_a_mirror_needs_and_no_more() -> None:
    text = (ROOT / "charts" / "blockhouse" / "templates" / "_helpers.tpl").read_text()
    rule = text[text.index("[kafkamirrors]") :].splitlines()[1]

    assert rule.strip() == "verbs: [get, list, watch, patch]"
    assert "kafkamirrors/status]" in text
    assert kafka_mirror()["kind"] == "KafkaMirror"
