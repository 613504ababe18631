"""`adminTls`: what pods, probes and files have for it, and pods of before that are asked without."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from blockhouse_operator.adapters.endpoints import Endpoints
from blockhouse_operator.api import names
from blockhouse_operator.api.resolve import resolve
from blockhouse_operator.decide.pods import pod_seen
from blockhouse_operator.decide.references import Reference, references_of_pods
from blockhouse_operator.desired import aggregator, settings
from blockhouse_operator.desired import mirror as mirrors
from blockhouse_operator.desired.pod import template
from blockhouse_operator.desired.spec_hash import spec_hash
from tests.unit.operator.mirrors import mirror
from tests.unit.operator.resources import pipeline

GIVEN = {"secretRef": {"name": "admin"}, "caSecretRef": {"name": "authorities"}}
PLAIN, SECURE = pipeline(), pipeline(("spec.adminTls", GIVEN))
MOUNTED = {"name": "admin-tls", "mountPath": "/etc/blockhouse/admin-tls", "readOnly": True}


def pod_of(made: Any) -> dict[str, Any]:
    spec = resolve(made, 0)
    return template(spec, spec.replicas[0])


def probes(pod: dict[str, Any], name: str) -> set[tuple[str, str]]:
    (container,) = [each for each in pod["spec"]["containers"] if each["name"] == name]
    found = [container.get(f"{kind}Probe", {}).get("httpGet") for kind in ("startup", "readiness", "liveness")]
    return {(each["path"], each.get("scheme", "HTTP")) for each in found if each}


def test_aggregator_and_probes_use_the_certificate() -> None:
    pod, spec = pod_of(SECURE), resolve(SECURE, 0)
    (container,) = [each for each in pod["spec"]["containers"] if each["name"] == names.AGGREGATOR]

    assert MOUNTED in container["volumeMounts"]
    (volume,) = [each for each in pod["spec"]["volumes"] if each["name"] == "admin-tls"]
    (source,) = volume["projected"]["sources"]
    assert source["secret"]["name"] == "admin"
    assert probes(pod, names.AGGREGATOR) == {("/healthz", "HTTPS")}
    tls = yaml.safe_load(settings.document(settings.aggregator(spec, spec.replicas[0])))["admin"]["tls"]
    assert tls == {"certFile": "/etc/blockhouse/admin-tls/tls.crt", "keyFile": "/etc/blockhouse/admin-tls/tls.key"}


def test_the_verifier_and_the_mirror_use_it_too() -> None:
    (deployment,) = [each for each in aggregator.children(SECURE) if each["kind"] == "Deployment"]
    pod = deployment["spec"]["template"]
    assert {scheme for _, scheme in probes(pod, names.VERIFIER)} == {"HTTPS"}
    assert any(each["name"] == "admin-tls" for each in pod["spec"]["volumes"])

    pod = mirrors.deployment(mirror(("spec.adminTls", GIVEN)), "secrets")["spec"]["template"]
    assert {scheme for _, scheme in probes(pod, names.MIRROR)} == {"HTTPS"}


def test_it_restarts_pods_and_a_pipeline_without_it_stays_as_it_was() -> None:
    plain, secure = resolve(PLAIN, 0), resolve(SECURE, 0)
    assert spec_hash(plain, plain.replicas[0]) != spec_hash(secure, secure.replicas[0])
    assert {scheme for _, scheme in probes(pod_of(PLAIN), names.AGGREGATOR)} == {"HTTP"}
    assert "tls" not in yaml.safe_load(settings.document(settings.aggregator(plain, plain.replicas[0])))["admin"]


def test_a_pod_cannot_do_without_its_certificate() -> None:
    found = set(references_of_pods(SECURE.spec)) - set(references_of_pods(PLAIN.spec))
    assert found == {
        Reference("Secret", "admin", "tls.crt"),
        Reference("Secret", "admin", "tls.key"),
        Reference("Secret", "authorities", "ca.crt"),
    }


@pytest.mark.parametrize(("made", "secure"), [(PLAIN, False), (SECURE, True)])
def test_a_pod_is_asked_as_it_was_created(made: Any, secure: bool) -> None:
    pod = pod_of(made)
    pod["metadata"]["name"] = "events-0-dc-a-0-0"
    assert pod_seen(pod).secure is secure


def test_addresses_have_the_scheme() -> None:
    endpoints = Endpoints()
    assert endpoints.aggregator("r", "data", secure=True) == "https://r.data.svc:8080"
    assert endpoints.verifier("events", "data", secure=True).startswith("https://")
    assert endpoints.mirror("m", "data", secure=True).startswith("https://")
    assert endpoints.mirror("m", "data").startswith("http://")
