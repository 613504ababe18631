"""A replica leaves only when others have its data, and its volume last. ClickHouse's nodes in ZooKeeper are played."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from kazoo.client import KazooClient

from blockhouse_operator.api.labels import ACCEPT_DATA_LOSS
from e2e.scenarios.resources import Manifest, at_home, example, patched
from e2e.scenarios.site import Site
from e2e.scenarios.state import children

PARTS = ("all_0_4_1", "all_5_5_0")


class Nodes:
    """The nodes that ClickHouse makes for a table of the example, `db.clicks` of shard 0, in a place of its own."""

    def __init__(self, client: KazooClient, path: str) -> None:
        self._client = client
        self.path = path

    def register(self, replica: str, *parts: str, pointer: int = 9) -> None:
        own = f"{self.path}/replicas/{replica}"
        for node in (f"{self.path}/metadata", f"{own}/queue", *(f"{own}/parts/{part}" for part in parts)):
            self._client.ensure_path(node)
        self._client.create(f"{own}/log_pointer", str(pointer).encode())
        self._client.create(f"{own}/is_active", ephemeral=True)

    def register_part(self, replica: str, part: str) -> None:
        """It has fetched a part."""
        self._client.ensure_path(f"{self.path}/replicas/{replica}/parts/{part}")

    def end(self, replica: str) -> None:
        """Its server ends."""
        self._client.delete(f"{self.path}/replicas/{replica}/is_active")

    def parts(self, replica: str) -> set[str]:
        return set(self._client.get_children(f"{self.path}/replicas/{replica}/parts"))

    def replicas(self) -> list[str]:
        return sorted(self._client.get_children(f"{self.path}/replicas"))


@contextmanager
def nodes(site: Site, path: str) -> Iterator[Nodes]:
    client = KazooClient(hosts=site.surroundings.zookeeper.connect)
    client.start()
    try:
        yield Nodes(client, path)
    finally:
        client.stop()
        client.close()


def pipeline_of(site: Site, namespace: str, name: str, path: str, **changes: object) -> Manifest:
    """One shard in one zone, whose volumes are deleted with their replicas, and one table."""
    resource = at_home(example(), site.surroundings, name=name, namespace=namespace)
    columns = "a UInt64, _kafka_cluster String, _kafka_partition UInt32, _kafka_offset UInt64, _kafka_row UInt32"
    ddl = f"CREATE TABLE db.clicks ({columns}) ENGINE = ReplicatedMergeTree('{path}', '{{replica}}') ORDER BY a"
    return patched(
        resource,
        shards=1,
        zones=[{"name": "main", "replicas": 2}],
        tables=[{"name": "db.clicks", "ddl": ddl}],
        verifier={"enabled": False},
        clickhouse__managed__storage={"size": "1Gi", "deletionPolicy": "Delete"},
        **changes,
    )


def replicas(site: Site, name: str, namespace: str) -> set[str]:
    found = children(site.cluster, name, namespace)
    return {child["metadata"]["name"] for child in found if child["kind"] == "StatefulSet"}


def claims(site: Site, name: str, namespace: str) -> set[str]:
    found = children(site.cluster, name, namespace)
    return {child["metadata"]["name"] for child in found if child["kind"] == "PersistentVolumeClaim"}


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
@pytest.mark.core
def test_a_zone_is_replaced_without_losing_what_its_replicas_have(site: Site, namespace: str) -> None:
    name, path = "moving", "/clickhouse/moving/db.clicks"
    pipeline = pipeline_of(site, namespace, name, path)
    old, new = ([f"{name}-0-{zone}-{index}" for index in (0, 1)] for zone in ("main", "fresh"))
    with site.operator(), nodes(site, path) as table:
        site.apply(pipeline)
        site.wait_ready(name, namespace)
        for replica in old:
            table.register(replica, *PARTS)
        began = site.cluster.audit.mark()
        site.apply(patched(pipeline, zones=[{"name": "fresh", "replicas": 2}]))
        draining = site.wait_condition(
            f"{name}-0", namespace, "Reconciling", "True", "Draining", kind="csi", timeout=300
        )
        assert f"{new[0]} does not have table" in draining["message"]
        assert "2 parts (size unknown) to copy" in draining["message"]
        site.wait_condition(name, namespace, "Ready", "True", timeout=300)
        table.register(new[0], *PARTS)
        table.register(new[1], PARTS[0])
        site.wait(
            "the second one is reported to lack a part",
            lambda: "lacks 1 part" in site.condition("csi", f"{name}-0", namespace, "Reconciling").get("message", ""),
        )
        assert replicas(site, name, namespace) == {*old, *new}, "nothing has left"
        assert scales(site, old, namespace) == [1, 1]

        table.register_part(new[1], PARTS[1])

        site.wait("the first one is drained", lambda: 0 in scales(site, old, namespace))
        for replica in old:
            site.wait(f"{replica} is drained", lambda r=replica: drained(site, r, namespace))  # type: ignore[misc]
            table.end(replica)
        site.wait("the old zone is gone", lambda: replicas(site, name, namespace) == set(new), timeout=300)
        site.wait("its volumes are gone", lambda: claims(site, name, namespace) == {f"data-{r}" for r in new})
        assert table.replicas() == sorted(new)
    deleted = [request for request in site.writes(began) if request.verb == "delete"]
    for replica in old:
        mine = [request.resource for request in deleted if request.name in (replica, f"data-{replica}")]
        assert mine[-2:] == ["statefulsets", "persistentvolumeclaims"], f"the volume goes last: {mine}"


def scales(site: Site, names: list[str], namespace: str) -> list[int]:
    found = site.cluster.get("statefulset", "-n", namespace)["items"]
    return [one["spec"]["replicas"] for one in found if one["metadata"]["name"] in names]


def drained(site: Site, replica: str, namespace: str) -> bool:
    return scales(site, [replica], namespace) in ([0], [])


@pytest.mark.own_cluster("its pods are played by nodes of KWOK's")
def test_a_replica_that_alone_has_rows_leaves_when_a_person_accepts_the_loss(site: Site, namespace: str) -> None:
    name, path = "losing", "/clickhouse/losing/db.clicks"
    pipeline = patched(pipeline_of(site, namespace, name, path), zones=[{"name": "main", "replicas": 3}])
    last = f"{name}-0-main-2"
    with site.operator(), nodes(site, path) as table:
        site.apply(pipeline)
        site.wait_ready(name, namespace)
        table.register(last, *PARTS)
        site.apply(patched(pipeline, zones=[{"name": "main", "replicas": 2}]))
        draining = site.wait_condition(f"{name}-0", namespace, "Reconciling", "True", "Draining", kind="csi")
        assert f"{ACCEPT_DATA_LOSS}={last}" in draining["message"]

        site.cluster.kubectl("annotate", "csi", f"{name}-0", f"{ACCEPT_DATA_LOSS}={last}", "-n", namespace)

        site.wait("it is drained", lambda: drained(site, last, namespace))
        table.end(last)
        site.wait("it is gone", lambda: last not in replicas(site, name, namespace))
        shard = site.cluster.get("csi", f"{name}-0", "-n", namespace)["metadata"]
        assert ACCEPT_DATA_LOSS not in shard.get("annotations", {}), "one loss was accepted"
