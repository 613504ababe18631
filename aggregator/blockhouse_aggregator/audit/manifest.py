"""The producer's own record of what it sent: against it Kafka itself is checked, and retention cannot hide a loss."""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from blockhouse.errors import BlockhouseError
from blockhouse_aggregator.audit.compare import Ints, Produced

Key = tuple[str, str, int]
"""(table, cluster, partition)."""


@dataclass(frozen=True, slots=True)
class ManifestResult:
    """Messages of the manifest: how many it has, how many of them Kafka does not have, or has with other rows."""

    messages: int
    lost: int
    different: int

    @property
    def exact(self) -> bool:
        return not (self.lost or self.different)


def read_manifest(path: Path, topic: str) -> Mapping[Key, Produced]:
    """The good messages that the manifest has of `topic`. Raises BlockhouseError naming file and line."""
    found: dict[Key, tuple[array[int], array[int]]] = {}
    try:
        with path.open(encoding="utf-8") as lines:
            for number, line in enumerate(lines, 1):
                _note(found, line, number, path, topic)
    except (OSError, UnicodeDecodeError) as error:
        raise BlockhouseError(f"manifest {path} cannot be read: {error}") from error
    return {key: _sorted(np.array(o, np.int64), np.array(r, np.int64)) for key, (o, r) in found.items()}


def _note(found: dict[Key, tuple[array[int], array[int]]], line: str, number: int, path: Path, topic: str) -> None:
    try:
        entry = json.loads(line)
        if entry["topic"] != topic or entry["kind"] != "good":
            return
        key = (str(entry["table"]), str(entry["cluster"]), int(entry["partition"]))
        offsets, rows = found.setdefault(key, (array("q"), array("q")))
        offsets.append(entry["offset"])
        rows.append(entry["rows"])
    except (ValueError, KeyError, TypeError) as error:
        raise BlockhouseError(f"manifest {path}, line {number}: not an entry: {error!r}") from error


def check(pairs: Iterable[tuple[Produced, Produced, int]]) -> ManifestResult:
    """Compare (manifest, Kafka, the log's begin) of each table and stream. What retention took is not lost."""
    messages = lost = different = 0
    for listed, kept, begin in pairs:
        messages += len(listed.offsets)
        judged = listed.only(listed.offsets >= begin)
        there = np.isin(judged.offsets, kept.offsets)
        lost += int((~there).sum())
        known = judged.only(there)
        at = np.searchsorted(kept.offsets, known.offsets)
        different += int((kept.rows[at] != known.rows).sum())
    return ManifestResult(messages, lost, different)


def with_expired(kept: Produced, listed: Produced | None, begin: int) -> Produced:
    """What Kafka has, and before the log's begin what the manifest lists."""
    if listed is None:
        return kept
    expired = listed.only(listed.offsets < begin)
    return Produced(np.concatenate([expired.offsets, kept.offsets]), np.concatenate([expired.rows, kept.rows]))


def _sorted(offsets: Ints, rows: Ints) -> Produced:
    """By offset, each once: a manifest that was written twice lists the same twice."""
    unique, at = np.unique(offsets, return_index=True)
    return Produced(unique, rows[at])
