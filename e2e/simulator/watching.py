"""The pods of a cluster and what the kubelet brings into them, followed for the simulated world."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import structlog
from kubernetes import client, config

from blockhouse.config.load import ConfigError
from blockhouse.config.pipeline import AggregatorConfig
from e2e.cluster.follow import REQUEST_SECONDS, follow, patiently
from e2e.simulator import pods
from e2e.simulator.answers import Play
from e2e.simulator.clickhouse import ClickHouse, DoesNotStart, Machines
from e2e.simulator.server import SimulatorServer
from e2e.simulator.world import Key, Program

log = structlog.get_logger(__name__)

PROGRAMS = ("aggregator", "verifier", "mirror")
REPLICA_LABEL = "ingest.blockhouse.dev/replica"
PIPELINE_LABEL = "ingest.blockhouse.dev/pipeline"
MIRROR_LABEL = "ingest.blockhouse.dev/mirror"
SHARD_LABEL = "ingest.blockhouse.dev/shard"
SELECTOR = "app.kubernetes.io/part-of=blockhouse"


class PodWatch:
    """Follows the pods of one cluster. Runs on a thread; the world belongs to the event loop."""

    def __init__(self, kubeconfig: str, elsewhere: Mapping[str, str]) -> None:
        """`elsewhere` has base URLs by image, of other simulators that play the programs of that image."""
        config.load_kube_config(kubeconfig)  # type: ignore[no-untyped-call]
        self._core = client.CoreV1Api()
        self._elsewhere = elsewhere
        self._started: dict[str, Program] = {}
        self._machines = Machines()

    def follow_pods(self, server: SimulatorServer, loop: asyncio.AbstractEventLoop) -> None:
        """Starts and ends programs as their pods come and go."""
        for kind, pod in follow(self._core.list_pod_for_all_namespaces, label_selector=SELECTOR):
            self._apply(kind, pod, server, loop)

    def follow_suspensions(self, server: SimulatorServer, loop: asyncio.AbstractEventLoop) -> None:
        """The kubelet brings a changed ConfigMap into its pods; nothing here waits for that."""
        for kind, found in follow(self._core.list_config_map_for_all_namespaces, label_selector=SELECTOR):
            metadata, data = found["metadata"], found.get("data") or {}
            if "suspend" in data:
                shard = metadata["labels"]
                key = (metadata["namespace"], f"{shard[PIPELINE_LABEL]}-{shard[SHARD_LABEL]}")
                suspended = kind != "DELETED" and data["suspend"].strip() == "true"
                loop.call_soon_threadsafe(server.world.suspend, key, suspended, time.monotonic())

    def _apply(self, kind: str, pod: pods.Json, server: SimulatorServer, loop: asyncio.AbstractEventLoop) -> None:
        program = next((name for name in PROGRAMS if pods.command_of(pod, name)), None)
        if program is None:
            return
        metadata = pod["metadata"]
        key, uid, world = key_of(pod, program), metadata["uid"], server.world
        if kind == "DELETED" or not pods.is_live(pod, program):
            ended = self._started.pop(uid, None)
            if ended is not None and ended.server is not None:
                ended.server.end()
            loop.call_soon_threadsafe(lambda: world.drop(key, uid, time.monotonic()))
            return
        started = self._started.get(uid) or self._start(pod, program)
        if started is None:
            return
        annotations = metadata.get("annotations") or {}
        play, elsewhere = Play(annotations.get(pods.ANNOTATION, Play.WELL)), annotations.get(pods.ELSEWHERE, "")
        if other := self._elsewhere.get(pods.image_of(pod, program)):
            elsewhere = f"{other}/{'/'.join(key)}"
        current = replace(started, play=play, elsewhere=elsewhere)
        if self._started.get(uid) != current:
            self._started[uid] = current
            loop.call_soon_threadsafe(lambda: world.put(key, current, time.monotonic()))

    def _start(self, pod: pods.Json, program: str) -> Program | None:
        """Reads what the container would read at its start; None, with a line in the log, when it would not start."""

        def lookup(kind: str, name: str) -> pods.Content:
            read = self._core.read_namespaced_config_map if kind == "ConfigMap" else self._core.read_namespaced_secret
            found = patiently(lambda: read(name, pod["metadata"]["namespace"], _request_timeout=REQUEST_SECONDS))
            return pods.texts(kind, {"data": found.data})

        name = pod["metadata"]["name"]
        try:
            settings = pods.configuration(pod, program, lookup)
            token = pods.token(pod, program, settings, lookup)
            volume = self._volume(pod)
            server = self._server(pod, settings, volume, lookup)
        except (pods.Unusable, ConfigError, KeyError, client.ApiException) as error:
            log.error("simulator.pod_would_not_start", pod=name, error=str(error))
            return None
        except DoesNotStart as error:
            log.info("simulator.clickhouse_does_not_start", pod=name, error=str(error))
            self._crash(pod, str(error))
            return None
        log.info("simulator.started", pod=name, program=program)
        return Program(pod["metadata"]["uid"], settings, token, volume=volume, server=server)

    def _volume(self, pod: pods.Json) -> str:
        """UID of the claim of the volume with ClickHouse's data; empty without one."""
        name, namespace = pods.claim_of(pod), pod["metadata"]["namespace"]
        if not name:
            return ""
        read = self._core.read_namespaced_persistent_volume_claim
        found: Any = patiently(lambda: read(name, namespace, _request_timeout=REQUEST_SECONDS))
        return str(found.metadata.uid)

    def _server(self, pod: pods.Json, settings: pods.Config, volume: str, lookup: pods.Lookup) -> ClickHouse | None:
        """The ClickHouse that the pod asks for, started. Raises DoesNotStart."""
        version = (pod["metadata"].get("annotations") or {}).get(pods.CLICKHOUSE)
        if version is None or not isinstance(settings, AggregatorConfig):
            return None
        about = (settings.replica, version, pods.users_of(pod, lookup), volume, settings.zookeeper.servers)
        server = self._machines.server(*about)
        server.start()
        return server

    def _crash(self, pod: pods.Json, why: str) -> None:
        """What a kubelet reports of a server that ends at its start again and again. The aggregator, which can do
        nothing without it, is silent."""
        waiting = {"waiting": {"reason": "CrashLoopBackOff", "message": why}}
        crashed = {"ready": False, "restartCount": 2, "state": waiting}
        names = [container["name"] for container in pod["spec"]["containers"]]
        status = {
            "containerStatuses": [{"name": name, **crashed} for name in names],
            "conditions": [{"type": kind, "status": "False"} for kind in ("Ready", "ContainersReady")],
        }
        meta = pod["metadata"]
        patch = self._core.patch_namespaced_pod_status
        try:
            patiently(lambda: patch(meta["name"], meta["namespace"], {"status": status}))
        except client.ApiException as error:
            if error.status != 404:  # gone meanwhile
                raise


def key_of(pod: pods.Json, program: str) -> Key:
    """By what name the Service of a pod is known."""
    labels = pod["metadata"]["labels"]
    match program:
        case "aggregator":
            name = labels[REPLICA_LABEL]
        case "mirror":
            name = f"{labels[MIRROR_LABEL]}-mirror"
        case _:  # open: the verifier
            name = f"{labels[PIPELINE_LABEL]}-verifier"
    return pod["metadata"]["namespace"], name
