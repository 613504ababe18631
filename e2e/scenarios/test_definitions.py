"""The CRDs on a real API server: what it refuses, what it lets through, what it fills in.

An API server and etcd are all it takes: nothing reconciles here.
"""

from __future__ import annotations

import json
import os
import random
import secrets
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml
from kubernetes import client, config

from blockhouse_operator.api.labels import GROUP, VERSION
from blockhouse_operator.api.resource import InvalidSpec, parse_block_aggregator, parse_mirror, parse_reassignment
from blockhouse_operator.desired import aggregator, settings
from e2e.cluster.access import Programs, kubectl
from e2e.cluster.binaries import Binaries
from e2e.cluster.given import GivenCluster
from e2e.cluster.pki import Authority
from e2e.cluster.programs import ApiServer, Etcd
from e2e.scenarios.resources import example
from e2e.stack.ports import Ports
from e2e.stack.process import wait_until

pytestmark = [pytest.mark.core, pytest.mark.xdist_group("definitions")]  # its API server is started once

ROOT = Path(__file__).parents[2]
NAMESPACE = "blockhouse-definitions"
PIPELINES, SHARDS = "blockaggregators", "clickhouseshardingests"
REASSIGNMENTS, MIRRORS = "kafkareassignments", "kafkamirrors"
EXISTING = {"cluster": "events", "existing": {"hostTemplate": "chi-x-{shard}-{replica}"}}

Change = tuple[str, Any]
"""A path below the object and its new value; `...` takes the field away."""


class Server:
    """An API server that knows our definitions: its API, and kubectl."""

    def __init__(self, binaries: Programs, kubeconfig: Path) -> None:
        self._binaries = binaries
        self._kubeconfig = kubeconfig
        api = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
        self._objects = client.CustomObjectsApi(api)

    def kubectl(self, *arguments: str, stdin: str | None = None) -> str:
        return kubectl(self._binaries, self._kubeconfig, "-n", NAMESPACE, *arguments, stdin=stdin)

    def create(self, resource: dict[str, Any], *, plural: str = PIPELINES, **options: Any) -> dict[str, Any]:
        """What the API server makes of it. ApiException when it refuses."""
        stored = self._objects.create_namespaced_custom_object(GROUP, VERSION, NAMESPACE, plural, resource, **options)
        assert isinstance(stored, dict)
        return stored

    def would_create(self, resource: dict[str, Any], **options: Any) -> dict[str, Any]:
        """The same, without storing it."""
        return self.create(resource, **{"dry_run": "All", "field_validation": "Strict", **options})

    def replace(self, resource: dict[str, Any]) -> None:
        name = resource["metadata"]["name"]
        self._objects.replace_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PIPELINES, name, resource)

    def delete(self, name: str) -> None:
        self._objects.delete_namespaced_custom_object(GROUP, VERSION, NAMESPACE, PIPELINES, name)


def refusal(action: Callable[[], object]) -> str:
    """Why the API server refuses; empty when it does not."""
    try:
        action()
    except client.ApiException as error:
        return str(json.loads(error.body or "{}").get("message", error))
    return ""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, given: GivenCluster | None) -> Iterator[Server]:
    if given is not None:  # which has the definitions already
        given.make_namespace(NAMESPACE)
        yield await_definitions(Server(given.binaries, given.kubeconfig))
        return
    folder, binaries, ports = tmp_path_factory.mktemp("definitions"), Binaries.find(), Ports()
    authority = Authority(folder / "pki")
    authority.create()
    place = (folder, binaries, authority)
    etcd = Etcd(*place, ports["etcd"], ports["peer"], dies_with_parent=True)
    api = ApiServer(*place, ports["api"], etcd=etcd, address="127.0.0.1", audit=False, dies_with_parent=True)
    kubeconfig = folder / "kubeconfig"
    authority.kubeconfig(kubeconfig, api.url, identity=authority.issue("admin", "/O=system:masters/CN=admin"))
    try:
        etcd.start()
        api.start()
        found = Server(binaries, kubeconfig)
        found.kubectl("create", "namespace", NAMESPACE)
        found.kubectl("apply", "--server-side", "-f", str(ROOT / "crds"))
        found.kubectl("wait", "--for=condition=Established", "crd", "--all", "--timeout=60s")
        yield await_definitions(found)
    finally:
        api.kill()
        etcd.kill()
        ports.release()


def await_definitions(server: Server) -> Server:
    """A definition that is established is served a moment later."""
    assert wait_until(lambda: refusal(lambda: server.would_create(example())) == "", timeout=30)
    return server


def changed(*changes: Change, base: dict[str, Any] | None = None) -> dict[str, Any]:
    result: dict[str, Any] = json.loads(json.dumps(base or example()))
    for path, value in changes:
        *steps, last = path.split(".")
        at: Any = result
        for step in steps:
            at = at[int(step)] if isinstance(at, list) else at.setdefault(step, {})
        key = int(last) if isinstance(at, list) else last
        if value is ...:
            del at[key]
        else:
            at[key] = value
    return result


@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.yaml")), ids=lambda path: path.stem)
def test_every_example_is_accepted(server: Server, path: Path, tmp_path: Path) -> None:
    ours = [found for found in yaml.safe_load_all(path.read_text()) if found["apiVersion"] == f"{GROUP}/{VERSION}"]
    assert ours
    for number, resource in enumerate(ours):
        resource["metadata"]["namespace"] = NAMESPACE
        file = tmp_path / f"{number}.yaml"
        file.write_text(yaml.safe_dump(resource))
        server.kubectl("apply", "--server-side", "--dry-run=server", "--validate=strict", "-f", str(file))


REFUSED: list[tuple[Change, str]] = [
    (("spec.kafka.clusters.0.bootstrapServers", "kafka://a-0:9092"), "without a scheme"),
    (("spec.kafka.clusters.0.bootstrapServers", "a-0"), "host:port"),
    (("metadata.name", "0events"), "metadata.name"),
    (("metadata.name", "e" * 29), "metadata.name"),
    (("spec.shards", 0), "spec.shards"),
    (("spec.shards", 51), "every shard must be served by a ZooKeeper ensemble"),
    (("spec.quorum", 5), "quorum must not be above the number of replicas"),
    (("spec.zones.1.name", "dc-a"), "Duplicate value"),
    (("spec.zones.1.name", "a-0-b"), "spec.zones[1].name"),
    (("spec.aggregator", ...), "spec.aggregator"),
    (("spec.clickhouse.existing", EXISTING["existing"]), "exactly one of managed and existing"),
    (("spec.clickhouse.remoteServers", "All"), "Unsupported value"),
    (("spec.clickhouse.managed", ...), "exactly one of managed and existing"),
    (("spec.clickhouse.managed.users.0.name", "cluster"), "users 'default' and 'cluster' are taken"),
    (("spec.clickhouse.managed.storage.size", "500"), "storage.size"),
    (("spec.kafka.groupTemplate", "events"), "groupTemplate"),
    (("spec.kafka.topic.config", {"cleanup.policy": "compact"}), "cannot be loaded exactly once"),
    (("spec.kafka.clusters.0.name", "Not A Name"), "clusters[0].name"),
    (("spec.kafka.clusters.1.name", "a"), "Duplicate value"),
    (("spec.kafka.clusters", []), "spec.kafka.clusters"),
    (("spec.tables.0.ddlFrom", {"configMapKeyRef": {"name": "a", "key": "b"}}), "at most one of ddl and ddlFrom"),
    (("spec.blocks.maxBytes", "10 MB"), "spec.blocks.maxBytes"),
    (("spec.blocks.maxRows", 2_000_000), "spec.blocks.maxRows"),
    (("spec.blocks.maxBytes", "65Mi"), "expected from 1Ki to 64Mi"),
    (("spec.blocks.maxBytes", 65 << 20), "expected from 1Ki to 64Mi"),
    (("spec.blocks.maxAge", "2m"), "expected from 1ms to 1m"),
    (("spec.tables.1.blocks.maxAge", "2m"), "expected from 1ms to 1m"),
    (("spec.kafka.sessionTimeout", "1h"), "expected from 1s to 30m"),
    (("spec.aggregator.unknownTable", "drop"), "Unsupported value"),
    (
        (
            "spec.zookeeper.ensembles",
            [
                {"name": "x", "shards": {"from": 0, "to": 1}, "servers": ["zk:2181"]},
                {"name": "y", "shards": {"from": 1, "to": 1}, "servers": ["zk:2181"]},
            ],
        ),
        "served by one ensemble only",
    ),
    (("spec.zookeeper.ensembles.0.shards", {"from": 9, "to": 3}), "from must not be above to"),
]


@pytest.mark.parametrize(("change", "reason"), REFUSED, ids=lambda part: part[0] if isinstance(part, tuple) else "")
def test_what_could_never_work_is_refused_with_the_reason(server: Server, change: Change, reason: str) -> None:
    assert reason in refusal(lambda: server.would_create(changed(change)))


ACCEPTED: list[tuple[Change, ...]] = [
    (("spec.blocks.maxBytes", 1 << 20),),
    (("spec.clickhouse", EXISTING),),
    (("spec.zones.1.replicas", 0),),
    (("spec.zones.0.name", "eu-central-1a"),),
    (("spec.kafka.clusters.0.tls", {}),),
    (("spec.kafka.clusters.0.bootstrapServers", "[fd00::1]:9092, a-1.kafka:9092"),),
    (("spec.tables", ...),),
    (
        ("spec.shards", 2050),
        ("spec.zookeeper.ensembles.0.shards", {"from": 0, "to": 2049}),
        ("spec.clickhouse.remoteServers", "None"),
    ),
    (
        (
            "spec.zookeeper.ensembles",
            [
                {"name": "x", "shards": {"from": 0, "to": 0}, "servers": ["zk:2181"]},
                {"name": "y", "shards": {"from": 1, "to": 4095}, "servers": ["zk:2181"]},
            ],
        ),
    ),
]


@pytest.mark.parametrize("changes", ACCEPTED, ids=lambda changes: changes[0][0])
def test_what_works_is_accepted_and_read_by_the_operator(server: Server, changes: tuple[Change, ...]) -> None:
    parse_block_aggregator(server.would_create(changed(*changes)))


LOAD = "spec.throttle.load"
REFUSED_REASSIGNMENTS: list[tuple[Change, str]] = [
    (("spec.cluster", {"name": "a", "bootstrapServers": "kafka:9092"}), "either cluster or clusterRef"),
    (("spec.clusterRef", ...), "either cluster or clusterRef"),
    (("spec.operation", "SetReplication"), "SetReplication needs replicationFactor"),
    (("spec.leaving", ...), "ReplaceBrokers needs leaving"),
    (("spec.leaving", []), "ReplaceBrokers needs leaving"),
    (("spec.approvedPlan", "yes"), "spec.approvedPlan"),
    (("spec.throttle.minRate", "1250"), "spec.throttle.minRate"),
    (("spec.throttle.interval", "1s"), "expected from 5s to 1h"),
    ((LOAD, {"source": "Prometheus"}), "source Prometheus needs prometheus with its url"),
    ((LOAD, {"source": "Static"}), "source Static needs static"),
]


@pytest.mark.parametrize(
    ("change", "reason"), REFUSED_REASSIGNMENTS, ids=lambda part: part[0] if isinstance(part, tuple) else ""
)
def test_a_reassignment_that_could_never_work_is_refused(server: Server, change: Change, reason: str) -> None:
    resource = changed(change, base=example("reassignment", "KafkaReassignment"))

    assert reason in refusal(lambda: server.would_create(resource, plural=REASSIGNMENTS))


@pytest.mark.parametrize("load", [..., {}, {"source": "CruiseControl"}, {"prometheus": {"url": "http://metrics:9090"}}])
def test_a_reassignment_that_works_is_accepted_and_filled_in(server: Server, load: Any) -> None:
    base = changed(("spec.throttle.load", {}), base=example("reassignment", "KafkaReassignment"))
    stored = server.would_create(changed((LOAD, load), base=base), plural=REASSIGNMENTS)

    found = parse_reassignment(stored).spec.throttle.load
    assert stored["spec"]["throttle"]["load"]["source"] == found.source
    assert found.source == (load if isinstance(load, dict) else {}).get("source", "Sampled")


REFUSED_MIRRORS: list[tuple[Change, str]] = [
    (("metadata.name", "0east"), "metadata.name"),
    (("metadata.name", "e" * 33), "metadata.name"),
    (("spec.target.name", "east"), "one name"),
    (("spec.delivery", "ExactlyOnce"), "ExactlyOnce is not there yet"),
    (("spec.delivery", "AtMostOnce"), "Unsupported value"),
    (("spec.load.utilization", "0.7"), "spec.load.utilization"),
    (("spec.load.utilization", "0%"), "expected from 1% to 100%"),
    (("spec.load.tolerance", "100.5%"), "expected from 1% to 100%"),
    (("spec.load.maxTasks", 0), "spec.load.maxTasks"),
    (("spec.topics.include", [""]), "spec.topics.include[0]"),
    (("spec.topics.rename.prefix", "a/"), "spec.topics.rename.prefix"),
    (("spec.image", ...), "spec.image"),
]


@pytest.mark.parametrize(
    ("change", "reason"), REFUSED_MIRRORS, ids=lambda part: part[0] if isinstance(part, tuple) else ""
)
def test_a_mirror_that_could_never_work_is_refused(server: Server, change: Change, reason: str) -> None:
    resource = changed(change, base=example("mirror", "KafkaMirror"))

    assert reason in refusal(lambda: server.would_create(resource, plural=MIRRORS))


@pytest.mark.parametrize("load", [..., {}, {"tolerance": "2.5%"}])
def test_a_mirror_that_works_is_accepted_and_filled_in(server: Server, load: Any) -> None:
    base = changed(("spec.load", load), base=example("mirror", "KafkaMirror"))
    stored = server.would_create(base, plural=MIRRORS)

    parsed = parse_mirror(stored)
    assert stored["spec"]["load"]["utilization"] == "70%"
    assert stored["spec"]["targetTopics"]["sync"][0] == "retention.ms"
    assert settings.mirror(parsed).load.tolerance == (0.025 if load not in (..., {}) else 0.1)


VALUES: tuple[Any, ...] = (
    *(0, 1, -1, 3, 1001, 1 << 40, True, False, 0.5, "", "0", "a", "A b", "x" * 300, "-", "{shard}"),
    *(
        "10Mi",
        "1Gi",
        "1e3",
        "5s",
        "0s",
        "1.5h",
        "24h",
        "10",
        [],
        ["a"],
        {},
        {"a": "b"},
        {"name": "a"},
        [{"name": "a"}],
        ...,
    ),
)


CHANGES = 200


def leaves(value: Any, path: str = "") -> Iterator[str]:
    """Paths of everything inside an object, but for keys with a dot, which no path can name."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in items:
        at = f"{path}.{key}".removeprefix(".")
        if "." not in str(key):
            yield at
            yield from leaves(inner, at)


def test_server_and_operator_agree_about_what_is_valid(server: Server) -> None:
    """What the server lets through the operator understands, and what the operator refuses the server refuses first."""
    seed = int(os.environ.get("SEED", secrets.randbelow(1 << 32)))
    sys.stdout.write(f"SEED={seed}\n")
    chance = random.Random(seed)
    places = [path for path in leaves(filled()) if path.startswith("spec.")]
    disagreements, accepted = [], 0
    for _ in range(CHANGES):
        change = (chance.choice(places), chance.choice(VALUES))
        resource = changed(change, base=filled())
        refused = refusal(partial(server.would_create, resource))
        try:
            parse_block_aggregator(resource)
            invalid = ""
        except InvalidSpec as error:
            invalid = str(error)
        accepted += not refused
        # Without the server's pruning and defaults the operator may only be the more generous of the two.
        if invalid and not refused:
            disagreements.append(f"{change}: {invalid}")

    assert disagreements == []
    assert CHANGES // 40 < accepted < CHANGES * 9 // 10, "the changes were not worth much"


def filled() -> dict[str, Any]:
    """The example with more of its fields."""
    return changed(
        ("spec.kafka.sessionTimeout", "20s"),
        ("spec.kafka.offsetMetadataMaxBytes", 4096),
        ("spec.aggregator.handoverAfter", "10s"),
        ("spec.aggregator.spark.conf", {"spark.task.cpus": "1"}),
        ("spec.zones.0.tolerations", [{"key": "a", "operator": "Exists", "tolerationSeconds": 3}]),
        ("spec.zookeeper.root", "/blockhouse/events"),
        ("spec.zookeeper.ensembles.0.auth", {"username": "u", "secretRef": {"name": "s", "key": "k"}}),
        ("spec.clickhouse.managed.storage.className", "fast"),
        ("spec.clickhouse.managed.settingsFrom", {"name": "a", "key": "b"}),
        ("spec.imagePullSecrets", [{"name": "pull"}]),
        ("spec.security", {"runAsUser": 101, "fsGroup": 101}),
    )


UPDATES: list[tuple[Change, Change, str]] = [
    (("spec.kafka.groupTemplate", "events-{shard}"), ("spec.kafka.groupTemplate", "e-{shard}"), "cannot be changed"),
    (("spec.kafka.topic.partitions", 4), ("spec.kafka.topic.partitions", 3), ""),
    (("spec.kafka.topic.partitions", 4), ("spec.kafka.topic.partitions", 8), ""),
    (("spec.clickhouse.cluster", "events"), ("spec.clickhouse.cluster", "others"), "cannot be changed"),
    (("spec.clickhouse.managed.storage.size", "1Gi"), ("spec.clickhouse.managed.storage.size", "900Mi"), ""),
    (("spec.clickhouse.managed.storage.size", "900Mi"), ("spec.clickhouse.managed.storage.size", "1Gi"), ""),
    (("spec.quorum", 2), ("spec.clickhouse", EXISTING), "cannot replace each other"),
    (("spec.quorum", 2), ("spec.clickhouse.managed.interserverSecretRef", {"name": "x"}), "neither added nor removed"),
    (("spec.shards", 2), ("spec.shards", 1), "shardRemovalPolicy: Drain"),
    (("spec.shardRemovalPolicy", "Drain"), ("spec.shards", 1), ""),
    (("spec.shards", 2), ("spec.shards", 50), ""),
    (("spec.zookeeper.root", "/a"), ("spec.zookeeper.root", "/b"), "cannot be changed"),
    (("spec.zookeeper.root", "/a"), ("spec.zookeeper.root", ...), "neither added nor removed"),
    (("spec.kafka.clusters.1.retired", False), ("spec.kafka.clusters.1", ...), "before it is retired"),
    (("spec.kafka.clusters.1.retired", False), ("spec.kafka.clusters.1.name", "c"), "before it is retired"),
    (("spec.kafka.clusters.1.retired", True), ("spec.kafka.clusters.1", ...), ""),
    (("spec.suspend", False), ("spec.suspend", True), ""),
]


@pytest.mark.parametrize(("before", "after", "reason"), UPDATES, ids=lambda part: part[0] if len(part) == 2 else "")
def test_updates_that_lose_something_are_refused(server: Server, before: Change, after: Change, reason: str) -> None:
    stored = server.create(changed(before, ("metadata.name", "updated")))
    try:
        found = refusal(lambda: server.replace(changed(after, base=stored)))
    finally:
        server.delete("updated")

    assert reason in found
    assert bool(found) == bool(reason)


def test_the_operators_own_shards_are_accepted_and_come_back_as_they_went(server: Server) -> None:
    pipeline = parse_block_aggregator(changed(("metadata.namespace", NAMESPACE), ("metadata.uid", "u")))
    shard = aggregator.shard_ingest(pipeline, 1)

    stored = server.would_create(shard, plural=SHARDS)

    assert included(shard["spec"], stored["spec"]) == []


def included(given: Any, stored: Any, path: str = "spec") -> list[str]:
    """Paths of what was given and is not there any more."""
    if isinstance(given, dict):
        missing = [f"{path}.{key}" for key in given if key not in stored]
        return missing + [
            p for key in given if key in stored for p in included(given[key], stored[key], f"{path}.{key}")
        ]
    if isinstance(given, list):
        pairs = enumerate(zip(given, stored, strict=True))
        return [p for number, (one, other) in pairs for p in included(one, other, f"{path}[{number}]")]
    return [] if given == stored else [path]


def test_unknown_fields_are_warned_about_and_dropped(server: Server) -> None:
    resource = changed(("spec.kafka.topik", 1))

    assert "unknown field" in refusal(lambda: server.would_create(resource))
    assert "topik" not in json.dumps(server.would_create(resource, field_validation="Ignore"))


def test_kubectl_explains_every_field(server: Server) -> None:
    text = server.kubectl("explain", "blockaggregator.spec.aggregator.image")

    assert "never taken from the operator's version" in " ".join(text.split())


def test_a_request_that_writes_a_spec_writes_no_status(server: Server) -> None:
    resource = changed(("metadata.name", "statusless"), ("status", {"observedGeneration": 7}))

    assert "status" not in server.create(resource)
