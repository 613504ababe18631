"""Objects of Kubernetes, kept packed: those of thousands of shards would take a gigabyte otherwise.

Objects of one kind are much alike, so each is kept as its difference from another one.
"""

from __future__ import annotations

import marshal
import zlib
from collections.abc import Iterable, Iterator, Mapping
from sys import intern
from typing import NamedTuple

from blockhouse_operator.adapters.kinds import Kind, Object

PATTERN = 32 << 10
"""Bytes: zlib looks no further back."""
LARGER = 1.25
"""By how much an object has to be larger than the pattern to become it: there are never many patterns."""
MARSHAL_VERSION = 2
"""Later ones write equal objects differently, by how often they are referred to: they would have less in common."""


class Packed(NamedTuple):
    """One object. Of one kind, later states have larger versions."""

    version: int
    name: str
    labels: Mapping[str, str]
    content: bytes
    pattern: bytes
    """Another object of the kind: `content` is the difference of this one from it."""

    def unpacked(self) -> Object:
        """The object, new each time."""
        found: Object = marshal.loads(zlib.decompressobj(zdict=self.pattern).decompress(self.content))
        return found


class Packer:
    """Packs the objects of one kind. One with much more in it than those before becomes the next pattern."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._pattern = b""

    def pack(self, found: Object) -> Packed:
        meta = found["metadata"]
        # marshal takes a third of the time of JSON; nothing but this process ever reads it.
        whole = marshal.dumps({"apiVersion": self._kind.api_version, "kind": self._kind.name, **found}, MARSHAL_VERSION)
        if len(whole) > LARGER * len(self._pattern) and len(self._pattern) < PATTERN:
            self._pattern = whole[:PATTERN]
        packer = zlib.compressobj(level=1, zdict=self._pattern)
        labels = {intern(key): intern(value) for key, value in (meta.get("labels") or {}).items()}
        content = packer.compress(whole) + packer.flush()
        return Packed(int(meta["resourceVersion"]), meta["name"], labels, content, self._pattern)


class PackedObjects(Mapping[tuple[str, str], Object]):
    """Live objects of one kind and one namespace at one moment, by (kind, name). Each is unpacked when it is asked for,
    and not kept."""

    def __init__(self, kind: Kind, found: Iterable[Packed] = ()) -> None:
        self._found = {(kind.name, each.name): each for each in found}

    def __getitem__(self, place: tuple[str, str]) -> Object:
        return self._found[place].unpacked()

    def __contains__(self, place: object) -> bool:
        return place in self._found

    def __iter__(self) -> Iterator[tuple[str, str]]:
        return iter(self._found)

    def __len__(self) -> int:
        return len(self._found)

    def version(self, place: tuple[str, str]) -> int | None:
        """The object's; None where there is none."""
        found = self._found.get(place)
        return None if found is None else found.version

    def labels(self, place: tuple[str, str]) -> Mapping[str, str]:
        """The object's."""
        return self._found[place].labels
