"""The verifier of a pipeline: one pod that watches the committed offsets of every Kafka cluster."""

from __future__ import annotations

from collections.abc import Iterator

from blockhouse_operator.api import labels, names
from blockhouse_operator.api.resource import BlockAggregator
from blockhouse_operator.desired import exposure, pod, settings, volumes
from blockhouse_operator.desired.manifest import Manifest, content_of, manifest
from blockhouse_operator.desired.spec_hash import digest
from blockhouse_operator.desired.template import add_metadata, extended
from blockhouse_operator.desired.template import volumes as user_volumes


def children(pipeline: BlockAggregator) -> Iterator[Manifest]:
    """ConfigMap, Service and Deployment."""
    name = names.verifier(pipeline.name)
    own = labels.of_pipeline(pipeline.name, names.VERIFIER)
    selector = {labels.PIPELINE: pipeline.name, labels.COMPONENT: names.VERIFIER}
    owner = pipeline.reference()
    files = {"verifier.yaml": settings.document(settings.verifier(pipeline))}
    yield manifest("ConfigMap", name, pipeline.namespace, labels=own, owner=owner, data=files)
    yield exposure.service(
        name, pipeline.namespace, [("admin", names.ADMIN_PORT)], labels=own, selector=selector, owner=owner
    )
    yield manifest(
        "Deployment",
        name,
        pipeline.namespace,
        api_version="apps/v1",
        labels=own,
        owner=owner,
        spec={
            "replicas": 1,
            # Two at a time would report every anomaly twice.
            "strategy": {"type": "Recreate"},
            "revisionHistoryLimit": 2,
            "selector": {"matchLabels": selector},
            "template": _template(pipeline, name, own),
        },
    )


def _template(pipeline: BlockAggregator, name: str, own: dict[str, str]) -> dict[str, object]:
    found: dict[str, object] = {
        "metadata": {"labels": own, "annotations": {labels.SPEC_HASH: spec_hash(pipeline)}},
        "spec": _pod(pipeline, name),
    }
    add_metadata(found, pipeline.spec.template.pod.metadata)
    return found


def spec_hash(pipeline: BlockAggregator) -> str:
    """Hash of the spec inputs that its configuration is written from: it reads its file only once."""
    spec = pipeline.spec
    kafka = content_of(spec.kafka)
    # Image and resources are part of the pod's template, and what equals its default is left out.
    own = {
        key: value for key, value in content_of(spec.verifier).items() if key not in ("enabled", "image", "resources")
    }
    return digest(
        {
            "pipeline": pipeline.name,
            "shards": spec.shards,
            "group": kafka["groupTemplate"],
            "topic": kafka["topic"]["nameTemplate"],
            "clusters": kafka["clusters"],
            **({"settings": own} if own else {}),
            **({"adminTls": content_of(spec.admin_tls)} if spec.admin_tls is not None else {}),
            **({"secrets": pipeline.secrets_hash} if pipeline.secrets_hash else {}),
        }
    )


def _pod(pipeline: BlockAggregator, name: str) -> dict[str, object]:
    spec = pipeline.spec
    logins = [volumes.kafka_login(cluster) for cluster in spec.kafka.clusters if not cluster.retired]
    logins = [login for login in (*logins, volumes.admin_certificate(spec.admin_tls)) if login.sources]
    folder, added, own = volumes.CONFIG, spec.template.pod, spec.template.verifier_container
    mounted = {mount.name for mount in own.volume_mounts}
    return {
        **pod.common(spec.security, name, spec.image_pull_secrets, added),
        "containers": [
            extended(
                pod.container(
                    names.VERIFIER,
                    spec.verifier.image or spec.aggregator.image,
                    spec.verifier.resources,
                    args=["verifier", "run", "--ignore-unknown", "--config", f"{folder}/verifier.yaml"],
                    env=[{"name": "HOME", "value": "/tmp"}],
                    ports=[{"name": "admin", "containerPort": names.ADMIN_PORT}],
                    startupProbe=pod.admin_probe("/healthz", 2, pod.START_FAILURES, spec.admin_tls),
                    readinessProbe=pod.admin_probe("/readyz", 5, 3, spec.admin_tls),
                    livenessProbe=pod.admin_probe("/healthz", 10, 6, spec.admin_tls),
                    volumeMounts=[
                        {"name": "config", "mountPath": folder, "readOnly": True},
                        volumes.internal_mount(),
                        {"name": "tmp", "mountPath": "/tmp"},
                        *(login.mount() for login in logins),
                    ],
                ),
                own,
                added,
            )
        ],
        "volumes": [
            {"name": "config", "configMap": {"name": name}},
            volumes.internal_volume(names.internal_secret(pipeline.name)),
            {"name": "tmp", "emptyDir": {"sizeLimit": "1Gi"}},
            *(login.volume() for login in logins),
            *(volume for volume in user_volumes(added) if volume["name"] in mounted),
        ],
    }
