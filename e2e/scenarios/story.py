"""What a cluster reported while a scenario ran: every change of a condition and every Event, in the order they came.

An Event that is repeated is one object with a count, and a condition keeps only its last change: read afterwards they
no longer show in which order things happened. So they are watched. It only reads.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from kubernetes import client, config

from e2e.cluster import ClusterError
from e2e.cluster.follow import follow

GROUP, VERSION = "ingest.blockhouse.dev", "v1alpha1"
KINDS = {"blockaggregators": "ba", "clickhouseshardingests": "csi"}


@dataclass(frozen=True, slots=True)
class Observation:
    """One thing that was reported: when it was seen, of which object, and in what words."""

    at: datetime
    about: str
    condition: str
    """Type of the condition; "Event" for an Event."""
    reason: str
    text: str

    def __str__(self) -> str:
        return f"{self.at:%H:%M:%S}  {self.about:<40} {self.condition:<18} {self.reason:<20} {self.text}".rstrip()


class Story:
    """Watches from the beginning of the block to its end."""

    def __init__(self, kubeconfig: Path) -> None:
        api = config.new_client_from_config(str(kubeconfig))  # type: ignore[no-untyped-call]
        self._custom, self._core = client.CustomObjectsApi(api), client.CoreV1Api(api)
        self._observations: list[Observation] = []
        self._conditions: dict[tuple[str, str], tuple[str, str]] = {}
        self._counts: dict[str, int] = {}
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._failure: Exception | None = None

    @property
    def observations(self) -> tuple[Observation, ...]:
        """So far. ClusterError when it could not follow any more."""
        if self._failure is not None:
            raise ClusterError("the story ends early") from self._failure
        with self._lock:
            return tuple(self._observations)

    def reasons(self, condition: str, about: str = "") -> list[str]:
        """The reasons of a condition's changes (or of Events) in their order, of objects whose name begins so."""
        return [
            seen.reason for seen in self.observations if seen.condition == condition and seen.about.startswith(about)
        ]

    def __enter__(self) -> Self:
        for follows in (*(partial(self._resources, plural) for plural in KINDS), self._events):
            threading.Thread(target=self._run, args=(follows,), daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()

    def _run(self, follows: Callable[[], None]) -> None:
        try:
            follows()
        except Exception as error:  # noqa: BLE001  raised to whom reads the story
            self._failure = error

    def _resources(self, plural: str) -> None:
        listing = self._custom.list_cluster_custom_object
        for sort, found in follow(listing, ended=self._ended, group=GROUP, version=VERSION, plural=plural):
            if sort != "DELETED":
                self._note_conditions(f"{KINDS[plural]}/{found['metadata']['name']}", found.get("status") or {})

    def _events(self) -> None:
        for sort, found in follow(self._core.list_event_for_all_namespaces, ended=self._ended):
            if sort != "DELETED":
                self._note_event(found)

    def _note_conditions(self, about: str, status: Mapping[str, Any]) -> None:
        present = {one["type"]: one for one in status.get("conditions", ())}
        for kind, found in present.items():
            state = (found["status"], found["reason"])
            if self._conditions.get((about, kind)) != state:
                self._conditions[about, kind] = state
                self._note(about, kind, found["reason"], f"{found['status']}: {found.get('message', '')}")
        for gone in [key for key in self._conditions if key[0] == about and key[1] not in present]:
            del self._conditions[gone]
            self._note(about, gone[1], "", "is over")

    def _note_event(self, found: Mapping[str, Any]) -> None:
        count = found.get("count") or (found.get("series") or {}).get("count") or 1
        if self._counts.get(found["metadata"]["uid"]) == count:
            return
        self._counts[found["metadata"]["uid"]] = count
        regarding = found["involvedObject"]
        kind = KINDS.get(f"{regarding.get('kind', '').lower()}s", regarding.get("kind", "").lower())
        self._note(f"{kind}/{regarding.get('name')}", "Event", found.get("reason") or "", found.get("message") or "")

    def _note(self, about: str, condition: str, reason: str, text: str) -> None:
        with self._lock:
            self._observations.append(
                Observation(datetime.now(UTC), about, condition, reason, " ".join(text.split())[:300])
            )
