"""What the watches reported, kept: a reconcile that finds nothing to do asks the API server nothing.

A store is never older than anything this process was answered: what it wrote or read itself is in it at once, and an
older report of a watch takes nothing of it back. Where it may be behind (a write whose answer is not the object, a
watch that is not heard) it answers nothing, and the API server is asked.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Mapping

from blockhouse_operator.adapters.kinds import Kind, Object
from blockhouse_operator.adapters.packed import Packed, Packer
from blockhouse_operator.api.labels import PIPELINE, SHARD

TRUSTED_SECONDS = 120.0
"""A watch that was not heard for so long may be dead: the API server sends a bookmark about once a minute."""

Place = tuple[str, str]
"""Namespace and name."""
Group = tuple[str, str | None, str | None]
"""Namespace, pipeline and shard of objects, by their labels."""


class Store:
    """The objects of one kind that its watch covers: of one namespace or all, with the labels of `selector`.

    `changed` is called with the group of an object that changed. `heard_at` is when the API server was last heard on
    the watch, by `clock`.
    """

    def __init__(
        self,
        kind: Kind,
        namespace: str | None,
        selector: Mapping[str, str],
        clock: Callable[[], float],
        changed: Callable[[Group], None] = lambda _: None,
    ) -> None:
        self.kind = kind
        self.namespace = namespace
        self.selector = selector
        self.complete = False
        """Whether the watch has listed everything and follows from there."""
        self.heard_at = clock()
        self._clock = clock
        self._changed = changed
        self._version = 0
        self._entries: dict[Place, Packed] = {}
        self._packer = Packer(kind)
        self._groups: dict[Group, set[Place]] = defaultdict(set)
        self._doubts: dict[Place, int] = {}
        self._doubted = 0

    @property
    def trusted(self) -> bool:
        """Whether what is not in doubt is as the API server has it, but for what is on the way."""
        return self.complete and self._clock() - self.heard_at < TRUSTED_SECONDS

    def heard(self) -> None:
        """The API server was heard on the watch."""
        self.heard_at = self._clock()

    def reported(self, found: Object, *, gone: bool = False) -> None:
        """An event of the watch, in the order of versions."""
        version, place = _version(found), _place(found)
        self._version = max(self._version, version)
        known = self._entries.get(place)
        if gone:
            if known is not None and known.version <= version:
                self._remove(place)
        elif known is None or known.version < version:
            self._put(place, found)

    def passed(self, version: str) -> None:
        """The watch has reported everything up to this version."""
        self._version = max(self._version, int(version))

    def lists(self, version: str) -> None:
        """A list of this version begins. One that is older than what was reported is of an API server that was restored
        from a backup: nothing that is known is of its history."""
        if int(version) < self._version:
            for place in list(self._entries):
                self._remove(place)
            self._version = 0

    def listed(self, places: Collection[Place], version: str) -> None:
        """A whole list of this version had these objects, all of which were `reported`, and no others."""
        for place in self._entries.keys() - places:
            if self._entries[place].version <= int(version):
                self._remove(place)
        self.passed(version)
        self.complete = True

    def asked(self) -> int:
        """To be given to `answered` and `read`: the moment at which a request is sent that only reads."""
        return self._doubted

    def doubt(self, place: Place) -> int:
        """Something is asked of this object, or was found about it, that its watch may not have reported yet: until it
        is reported gone, or a later request is answered with it, the API server is asked. Returns the moment, as
        `asked`; no event but the last is proof, for one may have been on the way before."""
        self._doubted += 1
        if place in self._entries:
            self._doubts[place] = self._doubted
            self._note(place)
        return self._doubted

    def answered(self, found: Object, asked: int) -> Place:
        """The API server answered with this object, of this place, a request of that moment."""
        version, place = _version(found), _place(found)
        known = self._entries.get(place)
        if not self._covers(found) or (known is None and version <= self._version):
            return place  # the watch was further already, and has reported it gone
        if known is None or known.version < version:
            self._put(place, found)
        if self._doubts.get(place, asked + 1) <= asked and self._entries[place].version == version:
            del self._doubts[place]
        return place

    def read(self, namespace: str | None, labels: Mapping[str, str], there: Collection[Place]) -> None:
        """The API server was asked for all objects with these labels, and has `answered` with those."""
        for place in [place for place in self._matching(namespace, labels) if place not in there]:
            self.doubt(place)

    def get(self, place: Place) -> Object | None:
        """The object; None where only the API server knows."""
        if not self.trusted or place in self._doubts or place not in self._entries:
            return None
        return self._entries[place].unpacked()

    def version(self, place: Place) -> int | None:
        """That of the object which `get` gives."""
        if not self.trusted or place in self._doubts or place not in self._entries:
            return None
        return self._entries[place].version

    def list(self, namespace: str | None, labels: Mapping[str, str]) -> list[Packed] | None:
        """The objects with these labels; None where only the API server knows all of them."""
        covered = self.selector.items() <= labels.items() and self.namespace in (None, namespace)
        places = list(self._matching(namespace, labels)) if covered and self.trusted else []
        if not covered or not self.trusted or any(place in self._doubts for place in places):
            return None
        return [self._entries[place] for place in places]

    @property
    def size(self) -> int:
        """Bytes of the packed objects."""
        return sum(len(entry.content) for entry in self._entries.values())

    def certain(self, group: Group) -> bool:
        """Whether everything of the group is known."""
        return self.trusted and not self._doubts.keys() & self._groups.get(group, set())

    def _matching(self, namespace: str | None, labels: Mapping[str, str]) -> Iterator[Place]:
        group = (namespace or "", labels.get(PIPELINE), labels.get(SHARD))
        places: Iterable[Place] = self._groups.get(group, ()) if namespace and None not in group else self._entries
        for place in places:
            if namespace in (None, place[0]) and labels.items() <= self._entries[place].labels.items():
                yield place

    def _covers(self, found: Object) -> bool:
        meta = found["metadata"]
        selected = self.selector.items() <= (meta.get("labels") or {}).items()
        return selected and self.namespace in (None, meta.get("namespace"))

    def _put(self, place: Place, found: Object) -> None:
        if place in self._entries:
            self._ungroup(place)
        packed = self._entries[place] = self._packer.pack(found)
        self._groups[_group(place, packed.labels)].add(place)
        self._note(place)

    def _remove(self, place: Place) -> None:
        self._ungroup(place)
        del self._entries[place]
        self._doubts.pop(place, None)

    def _ungroup(self, place: Place) -> None:
        self._note(place)
        group = _group(place, self._entries[place].labels)
        self._groups[group].discard(place)
        if not self._groups[group]:
            del self._groups[group]

    def _note(self, place: Place) -> None:
        self._changed(_group(place, self._entries[place].labels))


class Stores:
    """The stores of all watched kinds."""

    def __init__(self) -> None:
        self._by_kind: dict[Kind, dict[str | None, Store]] = {}
        self._changes: dict[Group, int] = {}
        self._count = 0

    def add(self, kind: Kind, namespace: str | None, selector: Mapping[str, str], clock: Callable[[], float]) -> Store:
        """A store for a watch to fill: of one namespace of several, or of all."""
        store = Store(kind, namespace, selector, clock, self._changed)
        self._by_kind.setdefault(kind, {})[namespace] = store
        return store

    def of(self, kind: Kind, namespace: str | None) -> Store | None:
        """The store that has the kind's objects of this namespace, or of all."""
        return _covering(self._by_kind.get(kind, {}), namespace)

    @property
    def size(self) -> int:
        """Bytes of all packed objects."""
        return sum(store.size for stores in self._by_kind.values() for store in stores.values())

    def state_of(self, group: Group) -> Hashable | None:
        """Changes whenever an object of the group does; None where something of it is not known for certain."""
        stores = [_covering(stores, group[0]) for stores in self._by_kind.values()]
        if not stores or not all(store is not None and store.certain(group) for store in stores):
            return None
        return self._changes.get(group, 0)

    def _changed(self, group: Group) -> None:
        self._count += 1
        self._changes[group] = self._count


def _covering(stores: Mapping[str | None, Store], namespace: str | None) -> Store | None:
    return stores.get(namespace) or stores.get(None)


def _place(found: Object) -> Place:
    meta = found["metadata"]
    return meta.get("namespace", ""), meta["name"]


def _version(found: Object) -> int:
    """Of one kind, later states have larger ones."""
    return int(found["metadata"]["resourceVersion"])


def _group(place: Place, labels: Mapping[str, str]) -> Group:
    return place[0], labels.get(PIPELINE), labels.get(SHARD)
