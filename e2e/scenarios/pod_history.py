"""What became of replicas' pods, in the order in which the API server had it: the judge of restarts.

One watch of pods reports every change in the order of its resource version, whatever any clock shows. Between two
lists of the pods one can go and come; between two events of one watch it cannot.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from kubernetes import client, config

from blockhouse_operator.api import labels
from e2e.cluster import ClusterError
from e2e.cluster.follow import follow


@dataclass
class _Shard:
    """Replicas by name: the pod that each had last, and whether it was ready. `most` were down at the same time."""

    pods: dict[str, str] = field(default_factory=dict)
    down: set[str] = field(default_factory=set)
    most: frozenset[str] = frozenset()


class PodHistory:
    """Of the replicas' pods of one namespace, from the beginning of the block to its end."""

    def __init__(self, core: client.CoreV1Api, namespace: str) -> None:
        self._core = core
        self._namespace = namespace
        self._shards: dict[str, _Shard] = defaultdict(_Shard)
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._failure: Exception | None = None

    @classmethod
    def of(cls, kubeconfig: Path, namespace: str) -> Self:
        """By an administrator's kubeconfig."""
        return cls(client.CoreV1Api(config.new_client_from_config(str(kubeconfig))), namespace)  # type: ignore[no-untyped-call]

    def __enter__(self) -> Self:
        threading.Thread(target=self._run, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ended.set()

    def present(self) -> dict[str, str]:
        """The uid of the pod of each replica that is ready. ClusterError when the pods could not be followed."""
        with self._lock:
            self._raise()
            return {
                name: uid
                for shard in self._shards.values()
                for name, uid in shard.pods.items()
                if name not in shard.down
            }

    def most_down(self) -> Mapping[str, frozenset[str]]:
        """By shard, the replicas that were down at the same time when most were, their first start not counted."""
        with self._lock:
            self._raise()
            return {name: shard.most for name, shard in self._shards.items()}

    def note(self, sort: str, pod: Mapping[str, Any]) -> None:
        """One change. A replica counts from the moment at which its first pod is ready."""
        meta = pod["metadata"]
        replica = (meta.get("labels") or {}).get(labels.REPLICA)
        if replica is None:
            return
        with self._lock:
            shard = self._shards[f"{meta['labels'][labels.PIPELINE]}-{meta['labels'][labels.SHARD]}"]
            if sort != "DELETED" and is_up(pod):
                shard.pods[replica] = meta["uid"]
                shard.down.discard(replica)
            elif shard.pods.get(replica) == meta["uid"]:
                shard.down.add(replica)
                shard.most = max(shard.most, frozenset(shard.down), key=len)

    def _run(self) -> None:
        try:
            for sort, pod in follow(self._core.list_namespaced_pod, ended=self._ended, namespace=self._namespace):
                self.note(sort, pod)
        except Exception as error:  # noqa: BLE001  raised to whom reads the history
            self._failure = error

    def _raise(self) -> None:
        if self._failure is not None:
            raise ClusterError("the history of the pods ends early") from self._failure


def is_up(pod: Mapping[str, Any]) -> bool:
    """It is ready, and was not asked to end."""
    if "deletionTimestamp" in pod["metadata"]:
        return False
    conditions = pod.get("status", {}).get("conditions") or ()
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)
