"""Every name that is derived from a resource, in one place.

The lengths are bounded so that nothing is ever cut: pipeline 28 + shard 3 + zone 16 + replica 2 + hyphens stay within
the 52 characters that a StatefulSet's name may have (its pods' labels carry it with a hash); a pipeline with shards of
4 digits has a name of 27. A zone's name cannot end in two numbers nor contain one in its middle, so no two replicas
share a name: `a-0-dc-1-0` is pipeline a, shard 0, zone dc-1, replica 0 and nothing else. Nothing here depends on a UID
or on the operator's version: the names live in ZooKeeper and in Kafka's groups.
"""

from __future__ import annotations

PIPELINE = r"^[a-z]([a-z0-9-]{0,26}[a-z0-9])?$"
"""What a BlockAggregator may be called: also the first label of Services, and in tokens and ZooKeeper paths."""

MIRROR_NAME = r"^[a-z]([a-z0-9-]{0,30}[a-z0-9])?$"
"""What a KafkaMirror may be called: its consumer group on the target is named by it."""
MIRROR_WORDS = "expected a letter, then letters, digits and hyphens, at most 32 in all"

SHARDS_OF_ANY_NAME, LONGEST_OF_MANY = 1000, 27
"""With more shards than this the name of a pipeline has so many characters at most."""
TOO_LONG = f"with more than {SHARDS_OF_ANY_NAME} shards at most {LONGEST_OF_MANY} characters are possible"

CLICKHOUSE, AGGREGATOR, VERIFIER, MIRROR = "clickhouse", "aggregator", "verifier", "mirror"
"""Names of containers, and of components in labels."""
NATIVE_PORT, HTTP_PORT, INTERSERVER_PORT, ADMIN_PORT = 9000, 8123, 9009, 8080
SECURE_NATIVE_PORT, HTTPS_PORT, SECURE_INTERSERVER_PORT = 9440, 8443, 9010


def shard_ingest(pipeline: str, shard: int) -> str:
    """The ClickHouseShardIngest of a shard; also its query Service, its PodDisruptionBudget and its NetworkPolicy."""
    return f"{pipeline}-{shard}"


def replica(pipeline: str, shard: int, zone: str, index: int) -> str:
    """A replica: its StatefulSet, its Service, its macro `{replica}`, its `group.instance.id`."""
    return f"{shard_ingest(pipeline, shard)}-{zone}-{index}"


def pod(replica_name: str) -> str:
    """The one pod of a replica's StatefulSet."""
    return f"{replica_name}-0"


def claim(replica_name: str) -> str:
    """The volume claim of a replica."""
    return f"data-{replica_name}"


def shard_config(pipeline: str, shard: int) -> str:
    """The ConfigMap of a shard: ClickHouse's settings and one aggregator configuration per replica."""
    return f"{shard_ingest(pipeline, shard)}-config"


def cluster_config(pipeline: str) -> str:
    """The ConfigMap with `remote_servers`, the same for all shards; read again without a restart."""
    return f"{pipeline}-cluster"


def internal_secret(pipeline: str) -> str:
    """The Secret that the operator makes with the `token` of the admin APIs; pods mount none of its others."""
    return f"{pipeline}-internal"


def read_secret(pipeline: str) -> str:
    """The Secret that the operator makes with the `token` that only reads, for Prometheus and people."""
    return f"{pipeline}-internal-read"


def password_secret(pipeline: str) -> str:
    """The Secret that the operator makes with the passwords between ClickHouse replicas."""
    return f"{pipeline}-internal-password"


def own_secrets(pipeline: str) -> tuple[str, ...]:
    """The Secrets with a pipeline's own credentials."""
    return internal_secret(pipeline), read_secret(pipeline), password_secret(pipeline)


def clickhouse_secret(pipeline: str) -> str:
    """The Secret with the users of a managed ClickHouse and with `remote_servers`; read again without a restart."""
    return f"{pipeline}-clickhouse"


def clickhouse_files(pipeline: str) -> str:
    """The Secret with the further configuration files of a managed ClickHouse."""
    return f"{pipeline}-clickhouse-files"


def replica_account(pipeline: str) -> str:
    """The ServiceAccount of replica pods; it has no rights."""
    return f"{pipeline}-replica"


def verifier(pipeline: str) -> str:
    """The verifier's Deployment, Service, ConfigMap and ServiceAccount."""
    return f"{pipeline}-verifier"


def mirror(name: str) -> str:
    """Every object of a KafkaMirror: Deployment, Service, ConfigMap, Secret, ServiceAccount and the rest."""
    return f"{name}-mirror"


def mirror_read_secret(name: str) -> str:
    """The Secret of a KafkaMirror with the `token` that only reads."""
    return f"{name}-mirror-read"


def mirror_group(name: str) -> str:
    """The consumer group on the target that has the positions of a KafkaMirror."""
    return f"km-{name}"


def from_template(template: str, shard: int) -> str:
    """A topic or group: the template with the shard's number."""
    return template.replace("{shard}", str(shard))


def replica_host(template: str | None, replica_name: str, namespace: str) -> str:
    """Where a replica is reached by others: its Service, or the host of its zone's `hostTemplate`."""
    host = template or "{replica}.{namespace}.svc"
    return host.replace("{replica}", replica_name).replace("{namespace}", namespace)


def existing_host(template: str, *, shard: int, number: int, zone: str, index: int) -> str:
    """Host of a replica that is not deployed by the operator; `number` counts in the shard, `index` in the zone."""
    values = {"{shard}": str(shard), "{replica}": str(number), "{zone}": zone, "{index}": str(index)}
    for placeholder, value in values.items():
        template = template.replace(placeholder, value)
    return template


def admin_url(replica_name: str, namespace: str) -> str:
    """The aggregator's admin API, through the replica's Service."""
    return f"http://{replica_host(None, replica_name, namespace)}:{ADMIN_PORT}"


def verifier_url(pipeline: str, namespace: str) -> str:
    """The verifier's HTTP API."""
    return f"http://{verifier(pipeline)}.{namespace}.svc:{ADMIN_PORT}"


def mirror_url(name: str, namespace: str) -> str:
    """The HTTP API of a KafkaMirror."""
    return f"http://{mirror(name)}.{namespace}.svc:{ADMIN_PORT}"


def zookeeper_root(pipeline: str) -> str:
    """Subtree of a pipeline that names none."""
    return f"/blockhouse/{pipeline}"
