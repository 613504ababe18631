"""A KafkaMirror of the scenarios: the example, and what the API server has of it."""

from __future__ import annotations

import json
from typing import Any

from blockhouse_operator.api.labels import MIRROR
from e2e.scenarios.resources import Manifest, example, patched
from e2e.scenarios.site import Site
from e2e.scenarios.state import KINDS

NAME, MADE = "east", "east-mirror"
SELECTOR = f"{MIRROR}={NAME}"


def mirror(namespace: str, **changes: Any) -> Manifest:
    """The example, in a namespace."""
    found = patched(example("mirror", "KafkaMirror"), **changes)
    found["metadata"]["namespace"] = namespace
    return found


def status(site: Site, namespace: str) -> dict[str, Any]:
    found: dict[str, Any] = site.cluster.get("km", NAME, "-n", namespace).get("status", {})
    return found


def pods(site: Site, namespace: str) -> dict[str, str]:
    """UID of each pod that is not about to end, and its name."""
    found = site.cluster.get("pods", "-n", namespace, "-l", SELECTOR)["items"]
    return {p["metadata"]["uid"]: p["metadata"]["name"] for p in found if "deletionTimestamp" not in p["metadata"]}


def wait_mirroring(site: Site, namespace: str) -> dict[str, str]:
    """Waits until the mirror is Ready at its present generation; returns its pods."""

    def ready() -> bool:
        found = site.cluster.get("km", NAME, "-n", namespace)
        conditions = {one["type"]: one["status"] for one in found.get("status", {}).get("conditions", ())}
        present = found.get("status", {}).get("observedGeneration") == found["metadata"]["generation"]
        return present and conditions.get("Ready") == "True" and "Reconciling" not in conditions

    site.wait(f"km {namespace}/{NAME} is Ready", ready, timeout=300, show=lambda: status(site, namespace))
    return pods(site, namespace)


def left(site: Site, namespace: str) -> list[str]:
    found = site.cluster.get(f"{KINDS},pods", "-n", namespace, "-l", SELECTOR)["items"]
    return [f"{one['kind']} {one['metadata']['name']}" for one in found]


def applied_again(site: Site, manifest: Manifest) -> None:
    """As a GitOps tool does, which looks for differences first: it finds none, and what it applies is no change."""
    namespace = manifest["metadata"]["namespace"]
    before = site.cluster.get("km", NAME, "-n", namespace)["metadata"]["generation"]
    text = json.dumps(manifest)
    assert site.cluster.kubectl("diff", "--server-side", "--force-conflicts", "-f", "-", stdin=text) == ""
    site.apply(manifest)
    assert site.cluster.get("km", NAME, "-n", namespace)["metadata"]["generation"] == before
