"""The pod of a replica: ClickHouse and, beside it, the aggregator that inserts into it.

Ready means that ClickHouse answers: an outage of Kafka must not take replicas out of the query Service. When the pod
ends, ClickHouse waits until the aggregator has let its last inserts finish.
"""

from __future__ import annotations

from math import ceil
from typing import Any

from blockhouse_operator.api import labels, names
from blockhouse_operator.api.clickhouse import ManagedClickHouse, Resources
from blockhouse_operator.api.parts import PodSecurity
from blockhouse_operator.api.references import AdminTls, LocalRef, PasswordSecretRef
from blockhouse_operator.api.shard import ClickHouseShardIngestSpec, Replica, ShardEnsemble
from blockhouse_operator.api.template import PodTemplate
from blockhouse_operator.desired import clickhouse, parts_login, scripts, settings, volumes
from blockhouse_operator.desired import clickhouse_files as files
from blockhouse_operator.desired.exposure import server_ports
from blockhouse_operator.desired.manifest import content_of, without_nothing
from blockhouse_operator.desired.spec_hash import spec_hash
from blockhouse_operator.desired.template import (
    RESTRICTED,
    add_metadata,
    affinity,
    extended,
    pod_fields,
    sidecars,
    spread,
)
from blockhouse_operator.desired.template import volumes as user_volumes

CLICKHOUSE_GRACE = 60
"""Seconds that ClickHouse may take to end, after the aggregator."""
AGGREGATOR_SLACK = 10
"""Seconds beyond its budget for which an aggregator is waited for."""
LONGEST_START = 86_400
"""Seconds that a start of ClickHouse may last if it works all the time."""
HUNG_GRACE = 5
"""Seconds between SIGTERM and SIGKILL of a ClickHouse that hangs at its start."""
START_FAILURES = 150
"""Probes, 2 s apart, until a start has failed: on a crowded node Python and Java take a minute and more, and a process
that is killed while it starts never comes to its end there."""


def template(spec: ClickHouseShardIngestSpec, replica: Replica) -> dict[str, Any]:
    """The pod template of a replica's StatefulSet."""
    zone = spec.zone(replica.zone)
    managed, added = spec.clickhouse.managed, spec.template.pod
    drain = ceil(settings.aggregator(spec, replica).shutdown_budget) + AGGREGATOR_SLACK
    grace = drain + (CLICKHOUSE_GRACE if managed else 0)
    containers = [extended(_aggregator(spec, managed is None), spec.template.aggregator_container, added)]
    if managed is not None:
        server = _clickhouse(spec, replica, managed, drain)
        containers.insert(0, extended(server, spec.template.clickhouse_container, added))
    shard = {labels.PIPELINE: spec.pipeline, labels.SHARD: str(spec.shard)}
    found: dict[str, Any] = {
        "metadata": {
            "labels": labels.of_replica(spec.pipeline, spec.shard, replica.zone, replica.name),
            "annotations": {labels.SPEC_HASH: spec_hash(spec, replica)},
        },
        "spec": {
            **common(spec.security, names.replica_account(spec.pipeline), spec.image_pull_secrets, added),
            "terminationGracePeriodSeconds": max(grace, added.termination_grace_period_seconds or 0),
            **without_nothing(
                nodeSelector=dict(zone.node_selector),
                tolerations=[content_of(toleration) for toleration in zone.tolerations],
                affinity=affinity(added.affinity, shard),
                initContainers=sidecars(added),
            ),
            "topologySpreadConstraints": spread(added.topology_spread_constraints, shard),
            "containers": containers,
            "volumes": [*_volumes(spec, replica), *user_volumes(added)],
        },
    }
    add_metadata(found, added.metadata)
    return found


def common(
    security: PodSecurity, account: str, pull_secrets: tuple[LocalRef, ...], added: PodTemplate
) -> dict[str, Any]:
    """What all our pods have: no rights in Kubernetes, no root, no variables of other Services."""
    return {
        "serviceAccountName": account,
        "automountServiceAccountToken": False,
        **pod_fields(added, security),
        **without_nothing(imagePullSecrets=[{"name": secret.name} for secret in pull_secrets]),
    }


def container(name: str, image: str, resources: Resources, **content: Any) -> dict[str, Any]:
    """A container that can write only where a volume is mounted."""
    return {
        "name": name,
        "image": image,
        "securityContext": RESTRICTED,
        **without_nothing(resources=content_of(resources)),
        **content,
    }


def spark_env() -> list[dict[str, Any]]:
    """Variables of a container that runs Spark and may write to /tmp only."""
    return [
        {"name": "HOME", "value": "/tmp"},
        {"name": "SPARK_LOCAL_DIRS", "value": "/tmp/spark"},
        # Java asks for a name, and the image has none for every user id.
        {"name": "SPARK_USER", "value": "blockhouse"},
    ]


def admin_probe(path: str, period: int, failures: int, tls: AdminTls | None) -> dict[str, Any]:
    """A probe of an admin API. The kubelet verifies no certificate."""
    return http(path, names.ADMIN_PORT, period, failures, secure=tls is not None)


def http(path: str, port: int, period: int, failures: int, *, secure: bool) -> dict[str, Any]:
    """A probe: `failures` times `period` seconds until it counts."""
    scheme = {"scheme": "HTTPS"} if secure else {}
    return {
        "httpGet": {"path": path, "port": port, **scheme},
        "periodSeconds": period,
        "timeoutSeconds": 5,
        "failureThreshold": failures,
    }


def _clickhouse(
    spec: ClickHouseShardIngestSpec, replica: Replica, managed: ManagedClickHouse, drain: int
) -> dict[str, Any]:
    end = scripts.wait_until_closed(names.ADMIN_PORT, drain)
    return container(
        names.CLICKHOUSE,
        managed.image,
        managed.resources,
        command=[*_waiting(spec.zookeeper), "clickhouse-server", "--config-file=/etc/clickhouse-server/config.xml"],
        env=_clickhouse_env(spec, replica),
        ports=[{"name": name, "containerPort": port} for name, port in server_ports(managed)],
        startupProbe=_started(_web(managed)),
        readinessProbe=http("/ping", _web(managed), 5, 3, secure=managed.secure),
        livenessProbe=http("/ping", _web(managed), 10, 12, secure=managed.secure),
        lifecycle={"preStop": {"exec": {"command": ["/bin/sh", "-c", end]}}},
        volumeMounts=[
            {"name": "data", "mountPath": clickhouse.DATA},
            {"name": "clickhouse-config", "mountPath": "/etc/clickhouse-server", "readOnly": True},
            {"name": "clickhouse-tmp", "mountPath": "/tmp"},
            *(login.mount() for login in _certificates(spec)),
        ],
    )


def _web(managed: ManagedClickHouse) -> int:
    """The port of its HTTP interface."""
    return names.HTTPS_PORT if managed.secure else names.HTTP_PORT


def _certificates(spec: ClickHouseShardIngestSpec) -> list[volumes.Login]:
    """The certificates and keys of its TLS."""
    managed, found = spec.clickhouse.managed, []
    if managed is not None and managed.tls is not None:
        found.append(volumes.server_certificates(managed.tls))
    if spec.zookeeper.tls is not None:
        found.append(volumes.zookeeper_login(spec.zookeeper))
    return [login for login in found if login.sources]


def _waiting(ensemble: ShardEnsemble) -> list[str]:
    """The command that waits for ZooKeeper. No shell speaks TLS; servers that do need not be waited for."""
    return [] if ensemble.tls else ["/bin/sh", "-c", scripts.start_after_zookeeper(ensemble.servers)]


def _started(port: int) -> dict[str, Any]:
    """One probe that lasts as long as the start: only so can it distinguish a server that loads many parts, for however
    long, from one that hangs. That one would not obey SIGTERM, and its pod's aggregator need not be waited for."""
    script = scripts.until_started(port)
    return {
        "exec": {"command": ["/bin/sh", "-c", script]},
        "periodSeconds": 5,
        "timeoutSeconds": LONGEST_START,
        "failureThreshold": 1,
        "terminationGracePeriodSeconds": HUNG_GRACE,
    }


def _clickhouse_env(spec: ClickHouseShardIngestSpec, replica: Replica) -> list[dict[str, Any]]:
    env: list[dict[str, Any]] = [
        {"name": clickhouse.REPLICA, "value": replica.name},
        {"name": clickhouse.HOST, "value": replica.host},
    ]
    managed = spec.clickhouse.managed
    if managed is not None and managed.interserver_secret_ref is not None:
        env.append(_from_secret(clickhouse.INTERSERVER_PASSWORD, managed.interserver_secret_ref))
    if auth := spec.zookeeper.auth:
        password = f"{clickhouse.ZOOKEEPER_LOGIN}_PASSWORD"
        env.append(_from_secret(password, auth.secret_ref))
        env.append({"name": clickhouse.ZOOKEEPER_LOGIN, "value": f"{auth.username}:$({password})"})
    return env


def _from_secret(variable: str, secret: PasswordSecretRef) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"secretKeyRef": {"name": secret.name, "key": secret.key}}}


def _aggregator(spec: ClickHouseShardIngestSpec, alone: bool) -> dict[str, Any]:
    """The aggregator; `alone` in its pod it decides about readiness, beside ClickHouse it does not."""
    tls = spec.admin_tls
    ready = {"readinessProbe": admin_probe("/readyz", 5, 3, tls)} if alone else {}
    return container(
        names.AGGREGATOR,
        spec.aggregator.image,
        spec.aggregator.resources,
        # The image may be older than this operator.
        args=["aggregator", "run", "--ignore-unknown", "--config", f"{volumes.CONFIG}/aggregator.yaml"],
        env=spark_env(),
        ports=[{"name": "admin", "containerPort": names.ADMIN_PORT}],
        startupProbe=admin_probe("/healthz", 2, START_FAILURES, tls),
        livenessProbe=admin_probe("/healthz", 10, 6, tls),
        **ready,
        volumeMounts=[
            {"name": "config", "mountPath": volumes.CONFIG, "readOnly": True},
            volumes.internal_mount(),
            {"name": "tmp", "mountPath": "/tmp"},
            *(login.mount() for login in _logins(spec)),
        ],
    )


def _logins(spec: ClickHouseShardIngestSpec) -> list[volumes.Login]:
    logins = [volumes.kafka_login(cluster) for cluster in spec.kafka.clusters if not cluster.retired]
    if existing := spec.clickhouse.existing:
        logins.append(volumes.Login(volumes.CLICKHOUSE, existing.tls, existing.password_secret_ref))
    logins.append(volumes.zookeeper_login(spec.zookeeper))
    logins.append(volumes.admin_certificate(spec.admin_tls))
    return [login for login in logins if login.sources]


def _volumes(spec: ClickHouseShardIngestSpec, replica: Replica) -> list[dict[str, Any]]:
    shared = names.shard_config(spec.pipeline, spec.shard)
    own = [{"key": f"{replica.name}.yaml", "path": "aggregator.yaml"}, {"key": "suspend", "path": "suspend"}]
    found = [
        {"name": "config", "configMap": {"name": shared, "items": own}},
        volumes.internal_volume(names.internal_secret(spec.pipeline)),
        # Spark's and Java's own files; not memory, which would count against the containers' limits.
        {"name": "tmp", "emptyDir": {"sizeLimit": "2Gi"}},
        *(login.volume() for login in _logins(spec)),
    ]
    if managed := spec.clickhouse.managed:
        if managed.tls is not None:
            found.append(volumes.server_certificates(managed.tls).volume())
        found.append({"name": "clickhouse-tmp", "emptyDir": {"sizeLimit": "1Gi"}})
        found.append({"name": "data", "persistentVolumeClaim": {"claimName": names.claim(replica.name)}})
        found.append(
            {
                "name": "clickhouse-config",
                "projected": {"defaultMode": 0o440, "sources": _clickhouse_files(spec, managed, shared)},
            }
        )
    return found


def _clickhouse_files(spec: ClickHouseShardIngestSpec, managed: ManagedClickHouse, shared: str) -> list[dict[str, Any]]:
    secret = [
        {"key": "users.xml", "path": "users.xml"},
        {"key": "remote_servers.xml", "path": "config.d/remote_servers.xml"},
    ]
    found: list[dict[str, Any]] = [
        {"configMap": {"name": shared, "items": [{"key": "config.xml", "path": "config.xml"}]}},
        {"secret": {"name": names.clickhouse_secret(spec.pipeline), "items": secret}},
    ]
    if managed.interserver_secret_ref is not None:
        # Without it, as an earlier operator leaves that Secret, servers have the password from their environment.
        item = {"key": parts_login.FILE, "path": f"config.d/{parts_login.FILE}"}
        found.append({"secret": {"name": names.clickhouse_secret(spec.pipeline), "optional": True, "items": [item]}})
    if settings := managed.settings_from:
        item = {"key": settings.key, "path": "config.d/settings.xml"}
        found.append({"configMap": {"name": settings.name, "items": [item]}})
    further = names.clickhouse_files(spec.pipeline)
    if spec.config_files:
        items = [{"key": one.key, "path": files.config_path(one.name)} for one in spec.config_files]
        found.append({"secret": {"name": further, "items": items}})
    if spec.user_files:
        # All that there may ever be, so that a further one needs no other pod.
        items = [{"key": slot, "path": f"users.d/{slot}"} for slot in files.USER_SLOTS]
        found.append({"secret": {"name": further, "optional": True, "items": items}})
    return found
