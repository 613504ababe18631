"""As much of a Kubernetes as the reconcile of a KafkaReassignment needs: objects in files, which outlive the process.

Spec and status of a resource are two files: a person writes the one, the operator the other.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from blockhouse_operator.adapters.fence import Fence
from blockhouse_operator.adapters.kinds import CONFIG_MAP, KAFKA_REASSIGNMENT, SECRET, Kind, Object, kind_of

NAMESPACE = "data"


def write(path: Path, content: Mapping[str, Any]) -> None:
    """Replace the file at once: a reader and a killed writer leave no half of one."""
    new = path.with_suffix(".new")
    new.write_text(json.dumps(content))
    new.replace(path)


def read(path: Path) -> dict[str, Any] | None:
    """The content; None where there is no such file."""
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    return found


class Desk:
    """What a person does with reassignments: apply, look, delete."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def apply(self, name: str, spec: Mapping[str, Any]) -> None:
        """Write the spec; its generation grows when it differs."""
        path = spec_path(self._folder, name)
        before = read(path)
        generation = 1 if before is None else before["metadata"]["generation"] + (before["spec"] != spec)
        meta = {"name": name, "namespace": NAMESPACE, "uid": f"uid-{name}", "generation": generation}
        write(path, {"metadata": meta | {"creationTimestamp": "2026-01-01T00:00:00Z"}, "spec": dict(spec)})

    def delete(self, name: str) -> None:
        spec_path(self._folder, name).unlink()
        status_path(self._folder, name).unlink(missing_ok=True)

    def secret(self, name: str, values: Mapping[str, str]) -> None:
        """Make a Secret."""
        data = {key: base64.b64encode(value.encode()).decode() for key, value in values.items()}
        write(self._folder / f"{SECRET.plural}.{name}.json", {"metadata": {"name": name}, "data": data})

    def status(self, name: str) -> dict[str, Any]:
        return read(status_path(self._folder, name)) or {}

    def records(self) -> list[str]:
        """Names of the ConfigMaps that are there."""
        return sorted(path.name.split(".")[1] for path in self._folder.glob(f"{CONFIG_MAP.plural}.*.json"))


def spec_path(folder: Path, name: str) -> Path:
    return folder / f"spec.{name}.json"


def status_path(folder: Path, name: str) -> Path:
    return folder / f"status.{name}.json"


class FileKubernetes:
    """The operator's side. Asks the fence before every write, as the real one does."""

    def __init__(self, folder: Path, fence: Fence) -> None:
        self._folder = folder
        self._fence = fence

    def names(self) -> list[str]:
        """Of reassignments that are there, or of which a record is."""
        named = [path.name.split(".")[1] for path in self._folder.glob("spec.*.json")]
        planned = [record.removesuffix("-plan") for record in Desk(self._folder).records() if record.endswith("-plan")]
        return sorted({*named, *planned})

    async def get(self, kind: Kind, _namespace: str, name: str) -> Object | None:
        return self._resource(name) if kind is KAFKA_REASSIGNMENT else read(self._path(kind, name))

    async def list(self, kind: Kind, _namespace: str | None, labels: Mapping[str, str] | None = None) -> list[Object]:
        return [found for found in self._all(kind) if _has(found, labels or {})]

    async def apply(self, manifest: Object, _live: Object | None) -> None:
        path = self._path(kind_of(manifest), manifest["metadata"]["name"])
        if read(path) != manifest:
            self._fence.check()
            write(path, manifest)

    async def apply_status(self, _kind: Kind, live: Object, status: Mapping[str, Any]) -> bool:
        if live.get("status", {}) == status:
            return False
        self._fence.check()
        write(status_path(self._folder, live["metadata"]["name"]), status)
        return True

    async def delete(self, live: Object, *, why: str) -> None:
        assert why
        self._fence.check()
        self._path(kind_of(live), live["metadata"]["name"]).unlink(missing_ok=True)

    async def emit(self, _about: Object, *, warning: bool, reason: str, message: str, at: str) -> None:
        self._fence.check()
        with (self._folder / "events").open("a") as lines:
            lines.write(json.dumps({"warning": warning, "reason": reason, "message": message, "at": at}) + "\n")

    def _resource(self, name: str) -> Object | None:
        found = read(spec_path(self._folder, name))
        if found is None:
            return None
        kind = {"apiVersion": KAFKA_REASSIGNMENT.api_version, "kind": KAFKA_REASSIGNMENT.name}
        return kind | found | {"status": read(status_path(self._folder, name)) or {}}

    def _all(self, kind: Kind) -> Iterator[Object]:
        if kind is KAFKA_REASSIGNMENT:
            yield from filter(None, map(self._resource, self.names()))
            return
        for path in sorted(self._folder.glob(f"{kind.plural}.*.json")):
            found = read(path)
            if found is not None:
                yield found

    def _path(self, kind: Kind, name: str) -> Path:
        return self._folder / f"{kind.plural}.{name}.json"


def _has(found: Object, labels: Mapping[str, str]) -> bool:
    known = found["metadata"].get("labels") or {}
    return all(known.get(key) == value for key, value in labels.items())
