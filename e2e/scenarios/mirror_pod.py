"""The pod of a KafkaMirror as a process of this machine: what its container would run, with what that would find.

Its node is KWOK's, on which nothing runs; this is the kubelet for one mirror. Only where it listens is another place.
"""

from __future__ import annotations

import threading
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Self

import yaml

from blockhouse_operator.desired import settings
from e2e.kit.mirror import MirrorProcess
from e2e.scenarios.mirrors import NAME, SELECTOR
from e2e.scenarios.site import Site
from e2e.simulator import pods

EVERY = 1.0
"""Seconds between two requests for the pods."""


class MirrorPod:
    """Runs `blockhouse mirror` while the mirror has a pod, and ends it in order when that is asked to end."""

    def __init__(self, site: Site, namespace: str, folder: Path) -> None:
        self.process = MirrorProcess(site.surroundings.kafka, folder, NAME, "")
        self.exits: list[int] = []
        """Exit codes of the pods that ended, in their order."""
        self._site, self._namespace, self._folder = site, namespace, folder
        self._uid = ""
        self._stopped = threading.Event()
        self._thread = ThreadPoolExecutor(1)
        self._followed: Future[None] | None = None

    @property
    def annotations(self) -> dict[str, str]:
        """Of the pod: what is asked of it, the process answers."""
        return {pods.ELSEWHERE: f"http://127.0.0.1:{self.process.port}"}

    def __enter__(self) -> Self:
        self._followed = self._thread.submit(self._follow)
        return self

    def __exit__(self, *_: object) -> None:
        """Raises what kept it from following the pods."""
        self._stopped.set()
        try:
            assert self._followed is not None
            self._followed.result()
        finally:
            self.process.kill()  # before the thread ends: the kernel ends the process with it
            self._thread.shutdown()

    def _follow(self) -> None:
        while not self._stopped.wait(EVERY):
            found = self._site.cluster.get("pods", "-n", self._namespace, "-l", SELECTOR)["items"]
            live = [pod for pod in found if "deletionTimestamp" not in pod["metadata"]]
            uid = live[0]["metadata"]["uid"] if live else ""
            if uid == self._uid:
                continue
            if self._uid:
                self.exits.append(self.process.terminate())
            self._uid = uid
            if live:
                self._start(live[0])

    def _start(self, pod: dict[str, Any]) -> None:
        config = pods.configuration(pod, "mirror", self._content)
        token = self._folder / "token"
        token.write_text(pods.token(pod, "mirror", config, self._content) or "")
        self.process.document = yaml.safe_load(settings.document(config)) | {
            "admin": {"port": self.process.port, "token": {"file": str(token)}},
            "logFormat": "console",
        }
        self.process.start()

    def _content(self, kind: str, name: str) -> pods.Content:
        return pods.texts(kind, self._site.cluster.get(kind.lower(), name, "-n", self._namespace))
